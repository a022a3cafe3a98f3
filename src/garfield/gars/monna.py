"""MoNNA: the mean of the n − f rows nearest a row that the caller trusts.

Made for a node that has a row of its own: give its position as `reference`, or
give a vector. Without one, the centre of the tightest ball that holds n − f
rows takes its place: that ball reaches no farther than honest rows lie apart.

Needs n >= 2f + 1. Costs O(n² d), or O(n d) with a vector as reference.
Farhadkhani et al., ICML 2023.
"""

import numpy as np

from garfield.core.errors import ConfigError
from garfield.core.types import Vector
from garfield.gars.choice import Choice, average_of
from garfield.gars.rule import gar
from garfield.kernels import Rows
from garfield.kernels.algebra import smallest, tightest_ball


def _reference_exists(n: int, f: int, reference: Vector | int | None = None) -> None:
    if isinstance(reference, int) and not 0 <= reference < n:
        raise ConfigError(f"monna.reference must be within 0..{n - 1}, got {reference}.")


@gar(
    "monna",
    needs=lambda f: 2 * f + 1,
    limits=_reference_exists,
    selects=True,
    cost="O(n² d)",
    choose="peer to peer: a node that trusts its own gradient",
    remembers="own row",
)
def monna(rows: Rows, *, f: int, reference: Vector | int | None = None) -> Choice:
    if reference is None or isinstance(reference, int):
        dists = rows.sq_dists()
        centre = tightest_ball(dists, rows.n - f)[0] if reference is None else reference
        return average_of(rows, smallest(dists[centre], rows.n - f, dists), scores=dists[centre])
    to_reference = rows.sq_dists_to(reference)
    nearest = np.sort(np.argsort(to_reference, kind="stable")[: rows.n - f])
    return average_of(rows, nearest, scores=to_reference)
