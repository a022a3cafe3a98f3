"""The fractional repetition code: groups that compute the same, decoded by majority.

The n workers are cut into n / r groups; worker j of group ℓ = ⌊j / r⌋ computes the
gradients ℓr … ℓr + r − 1 and sends their sum, a float32 vector. In a group, all
honest rows are equal bit for bit. The decoder takes of each group the vector that
at least f + 1 of its workers sent, for f cannot lie so often, and adds them up:

    mean = 1/n · Σ_ℓ Maj(rows ℓr … ℓr + r − 1)

A majority is of whole vectors: two rows that differ in one bit differ. Of f + 1 equal
ones an honest worker sent one, so that vector is the truth and whoever differs has lied,
whoever is late; with s of a group silent and f of it lying, f + 1 honest ones are left
if r ≥ 2f + s + 1. A group without f + 1 equal rows is not believed at all.

Needs r ≥ 2f + 1, and r must divide n. Decoding costs at most 2n comparisons of
rows (Boyer–Moore: one pass finds who may have a majority, one counts it), O(n d),
and no memory. Chen et al., ICML 2018; Boyer and Moore, 1981.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from garfield.coding.code import Code, Decoded, code
from garfield.core.errors import BoundError, DecodingError
from garfield.core.types import Floats, Indices
from garfield.kernels import read
from garfield.kernels.parallel import PART


@code("repetition")
class RepetitionCode(Code):
    """Exact to the last bit."""

    dtype = np.float32
    numbers = 1

    def __init__(self, n: int, f: int, r: int = 0) -> None:
        super().__init__(n, f, r)
        if n % self.r:
            fitting = [k for k in range(2 * f + 1, n + 1) if n % k == 0]
            raise BoundError(
                f"The repetition code cuts workers into groups of r, and r={self.r} does not "
                f"divide n={n}. Take r={fitting[0]}, or n={n // self.r * self.r} or "
                f"{-(-n // self.r) * self.r} workers, or the cyclic code."
            )

    @classmethod
    def least(cls, n: int, r: int) -> int:
        """The smallest divisor of n that is no less; r itself, which is refused, beyond n."""
        return next((k for k in range(max(1, r), n + 1) if n % k == 0), r)

    def computed_by(self, worker: int) -> Indices:
        first = worker // self.r * self.r
        return np.arange(first, first + self.r)

    def encode(self, worker: int, gradients: Iterable[Floats]) -> Floats:
        row: Floats | None = None
        with np.errstate(over="ignore", invalid="ignore"):  # of a diverged model: found out in time
            for gradient in gradients:  # in one order everywhere: sums of floats depend on it
                if row is None:
                    row = np.array(gradient, dtype=self.dtype)
                else:
                    row += gradient
        assert row is not None  # r is at least 1
        return row

    def _decode(
        self, rows: Sequence[Floats | None], f: int, secret: np.random.Generator
    ) -> Decoded:
        agreed: list[Floats] = []
        liars: dict[int, str] = {}
        for first in range(0, self.n, self.r):
            group = range(first, first + self.r)
            heard = {j: rows[j] for j in group if rows[j] is not None}
            truth, false = _vote(heard)
            self._require_majority(first, len(heard), len(false), f)
            agreed.append(truth)
            liars |= dict.fromkeys(false, "differs from its group")
        _require_few(liars, f)
        mean = read(agreed)[0].weighted_sum(np.full(len(agreed), 1.0 / self.n))
        return Decoded(mean, liars)

    def _require_majority(self, first: int, heard: int, false: int, f: int) -> None:
        if heard - false >= f + 1:
            return
        raise DecodingError(
            f"Of workers {first}..{first + self.r - 1}, who compute the same, {heard} answered, "
            f"and no vector was sent by {f + 1} of them (f + 1): more than f={f} lied, or others "
            "were silent beside them. Wait longer, or allow for more: a larger r or f, with "
            "r >= 2f + 1."
        )


def _require_few(liars: dict[int, str], f: int) -> None:
    if len(liars) > f:
        raise DecodingError(
            f"{len(liars)} workers differ from their groups ({_listed(liars)}), and f={f} may. "
            "Allow for more of them: a larger f, with r >= 2f + 1."
        )


def _vote(heard: dict[int, Any]) -> tuple[Any, list[int]]:
    """The vector of the majority, if there is one (some vector otherwise), and who differs.

    Boyer and Moore's: what was compared on the way is not compared again for the count.
    """
    candidate: Any = None
    lead, agrees = 0, dict[int, bool]()
    for j, row in heard.items():
        if lead == 0:
            candidate, agrees = row, {}
        agrees[j] = _same(row, candidate)
        lead += 1 if agrees[j] else -1
    for j in heard.keys() - agrees.keys():
        agrees[j] = _same(heard[j], candidate)
    return candidate, [j for j in heard if not agrees[j]]


def _same(a: Any, b: Any) -> bool:
    """Equal bit for bit. A part at a time: a lie mostly shows in the first; all stay in cache."""
    if a is b:
        return True
    bits = np.dtype(f"u{a.dtype.itemsize}")
    one, other = a.view(bits), b.view(bits)
    return all(
        np.array_equal(one[lo : lo + PART], other[lo : lo + PART])
        for lo in range(0, len(one), PART)
    )


def _listed(workers: Iterable[int]) -> str:
    return ", ".join(str(worker) for worker in sorted(workers))
