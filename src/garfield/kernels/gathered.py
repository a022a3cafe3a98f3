"""Rows as a caller has them: vectors, arrays of any shape, state dicts, lists, nests of these.

Vectors are read where they lie. Anything else becomes a vector as soon as it is drawn (see
`structures`), so that a generator's rows need not all be there at once. Rows of the same model have
the same structure: what most rows have is taken for it (of equally many, the first), and the others
are misfits, each with what is wrong with it. Honest rows are in the majority wherever a rule can
help at all, so no liar chooses what the structure is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from garfield.core.errors import InputError
from garfield.core.types import Vector
from garfield.kernels.kinds import framework_of, is_array, is_traced
from garfield.kernels.structures import FlatRow, Signature, difference, flatten, obstacle


@dataclass(frozen=True)
class Gathered:
    """n rows as vectors of one length, or None where there is none to aggregate."""

    rows: Any
    """A list of vectors and None, or one (n, d) array."""
    flat: tuple[FlatRow | None, ...] | None = None
    """Where rows were no vectors, what they were."""
    misfits: Mapping[int, str] = field(default_factory=dict)
    """What is wrong with rows that are not like most."""
    signature: Signature | None = None
    """What most rows are; None for plain vectors."""

    def __len__(self) -> int:
        return len(self.rows)

    def has_own(self, row: int) -> bool:
        """Whether a row has more to give than its floats."""
        return self.flat is not None and _there(self.flat[row]).has_own

    def restored(self, vector: Vector, row: int) -> Any:
        """A result as the caller's rows are: what it has beside floats is that of one row."""
        return vector if self.flat is None else _there(self.flat[row]).restored(vector)

    def fits(self, kept: Any) -> bool:
        """Whether an earlier result is as long as these rows, or of their structure."""
        if isinstance(kept, FlatRow):
            return kept.signature == self.signature
        if self.signature is not None:
            return False
        shapes = (getattr(row, "shape", (0,)) for row in self.rows if row is not None)
        return len(kept) == int(next(shapes, (0,))[-1])

    def as_vector(self, given: Any, what: str) -> Any:
        """A vector of the caller's that goes with the rows, flat as they are."""
        if self.signature is None:
            return given
        row = given if isinstance(given, FlatRow) else flatten(given)
        if row.signature != self.signature:
            apart = difference(row.signature, self.signature, "a row")
            raise InputError(f"{what} is not of the rows' structure: {apart}.")
        return row.vector


def gather(gradients: Any) -> Gathered:
    """Draw all rows; each that is no vector becomes one, and its original may go."""
    if isinstance(gradients, Gathered):
        return gradients
    if is_array(gradients) and len(gradients.shape) == 2:
        return Gathered(gradients)
    rows = [row if row is None or _is_vector(row) else flatten(row) for row in gradients]
    given = [row for row in rows if row is not None]
    if all(_alike(row, given[0]) for row in given):
        return Gathered(rows)
    return _of_structures([flatten(row) if _is_vector(row) else row for row in rows])


def _of_structures(rows: list[FlatRow | None]) -> Gathered:
    counts = Counter(row.signature for row in rows if row is not None)
    signature = counts.most_common(1)[0][0]  # of equal counts, the one met first
    first = next(i for i, row in enumerate(rows) if row is not None and row.signature == signature)
    problem = obstacle(signature)
    if problem:
        raise InputError(f"Row {first} has {problem}")
    misfits = {
        i: f"misfit: {difference(row.signature, signature, f'row {first}')}"
        for i, row in enumerate(rows)
        if row is not None and row.signature != signature
    }
    fitting = tuple(None if i in misfits else row for i, row in enumerate(rows))
    return Gathered(_together(fitting), fitting, misfits, signature)


def _together(rows: tuple[FlatRow | None, ...]) -> list[Vector | None]:
    """Their vectors; in main memory if they are not all on one device."""
    homes = {str(getattr(row.vector, "device", "cpu")) for row in rows if row is not None}
    vectors: list[Any] = [None if row is None else row.vector for row in rows]
    if len(homes) == 1:
        return vectors
    return [v.cpu().numpy() if framework_of(v) == "torch" else v for v in vectors]


def _is_vector(row: Any) -> bool:
    return is_array(row) and not is_traced(row) and len(row.shape) == 1


def _alike(row: Any, other: Any) -> bool:
    """Whether both are vectors of one framework, dtype and length."""
    if not (_is_vector(row) and _is_vector(other)):
        return False
    same = framework_of(row) == framework_of(other) and row.dtype == other.dtype
    return same and row.shape == other.shape


def _there(row: FlatRow | None) -> FlatRow:
    assert row is not None  # a row that is missing or a misfit is never asked for
    return row
