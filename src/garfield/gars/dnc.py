"""DnC (divide and conquer): drop the rows that stick out in random coordinates.

`iterations` times: pick `sample` coordinates at random, centre the rows there,
take the direction v of their largest spread, and drop the ⌈share · f⌉ rows of
largest ⟨v, x_i − μ⟩². The mean of the rows that were never dropped is the answer.

The coordinates must be unknown to the attackers: without a seed they are drawn
from the system's entropy. Needs n >= 2f + 1, and iterations · share · f < n.
Costs O(n d + iterations · n² sample). Shejwalkar and Houmansadr, NDSS 2021.
"""

import math

import numpy as np

from garfield.core.bounds import Seed
from garfield.core.errors import ConfigError
from garfield.gars.choice import Choice, average_of
from garfield.gars.rule import gar
from garfield.kernels import Rows

SQUARABLE = 1e70  # larger values, which only float64 holds, are judged by their rows' lengths


def _somebody_stays(
    n: int, f: int, share: float = 1.0, iterations: int = 1, sample: int = 1, **_: object
) -> None:
    if share < 0 or iterations < 1 or sample < 1:
        raise ConfigError(
            "dnc needs share >= 0, iterations >= 1 and sample >= 1, "
            f"got {share}, {iterations} and {sample}."
        )
    dropped = iterations * math.ceil(share * f)
    if dropped >= n:
        raise ConfigError(
            f"dnc may drop {dropped} of n={n} rows (iterations × share × f), which leaves none. "
            "Lower iterations or share."
        )


@gar(
    "dnc",
    needs=lambda f: 2 * f + 1,
    limits=_somebody_stays,
    selects=True,
    cost="O(n d + n² sample)",
    choose="d is huge: it looks at a sample of the coordinates only",
)
def dnc(
    rows: Rows,
    *,
    f: int,
    share: float = 1.0,
    iterations: int = 1,
    sample: int = 10_000,
    seed: Seed | None = None,
) -> Choice:
    rng = np.random.default_rng(seed)
    kept = np.ones(rows.n, dtype=bool)
    worst = np.zeros(rows.n)
    for _ in range(iterations):
        index = np.sort(rng.choice(rows.d, size=min(sample, rows.d), replace=False))
        seen = rows.columns(index)  # (n, sample)
        if not (np.abs(seen) < SQUARABLE).all():
            rows.require_moderate()
        centred = seen - seen.mean(axis=0)
        values, vectors = np.linalg.eigh(centred @ centred.T)
        score = vectors[:, -1] ** 2 * values[-1]  # (n,) squared parts along the widest
        kept[np.argsort(score, kind="stable")[rows.n - math.ceil(share * f) :]] = False
        worst = np.maximum(worst, score)
    return average_of(rows, np.flatnonzero(kept), scores=worst)
