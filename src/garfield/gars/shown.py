"""Which of the caller's rows a rule is shown, and for how many faults it then decides.

Of n rows with f faults, s never came and k are provably bad (not finite, or not shaped as most
rows are). Each of the k is one
of the f. The s need not be: a liar can make an honest peer late. So the n − s − k rows left are
aggregated for

    f′ = min(f − k, max_f(n − s − k))

faults. That is f − k, all that may be among them, wherever the rows left are enough for it;
where they are not, silence is charged to whoever was silent, and f′ < f − k − s is refused.
With a presence mask, what counts is the coordinate that the fewest values arrived of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from garfield.core.errors import InputError
from garfield.core.types import Flags, Indices, Vector
from garfield.gars.choice import Choice, Explained
from garfield.gars.presence import fewest_values

if TYPE_CHECKING:
    from garfield.gars.rule import Rule


@dataclass(frozen=True)
class Shown:
    """The rows that are left of n with f faults, and what became of the others."""

    n: int
    f: int
    places: Indices
    """Where each row that is left stands among the caller's."""
    set_aside: Mapping[int, str] = field(default_factory=dict)
    """Why each other row is not among them."""
    charged: int = 0
    """How many rows never came, that may be counted among the f."""
    bad: int = 0
    """How many rows came, and are provably bad."""
    present: Sequence[Flags] | None = None
    """Where the values of each row that is left arrived; None where all did."""

    @classmethod
    def of(cls, gradients: Any, f: int, mask: Any = None) -> Shown:
        """All rows but those that never came (None).

        Such a row counts as lost on its way, not as silence, where the mask has a row for it.
        """
        n = len(gradients)
        silent: list[int] = []
        if isinstance(gradients, Sequence):
            silent = [i for i, row in enumerate(gradients) if row is None]
        places = np.array([i for i in range(n) if i not in silent], dtype=np.intp)
        if mask is not None and len(mask) != n:
            raise InputError(f"The presence mask must have n={n} rows, got {len(mask)} rows.")
        lost = 0 if mask is None else sum(mask[i] is not None for i in silent)
        present = None if mask is None else [np.asarray(mask[i]) for i in places]
        why = dict.fromkeys(silent, "missing")
        return cls(n, f, places, why, len(silent) - lost, present=present)

    def without(self, bad: Flags, reason: str | Mapping[int, str]) -> Shown:
        """The same without these of the rows left, which are provably bad, each for its reason."""
        rows: list[int] = self.places[bad].tolist()
        left = np.flatnonzero(~bad)
        present = self.present
        if present is not None:
            present = [present[int(i)] for i in left]
        why = dict.fromkeys(rows, reason) if isinstance(reason, str) else reason
        bad_now = self.bad + len(rows)
        aside = {**self.set_aside, **why}
        return replace(
            self, places=self.places[left], set_aside=aside, bad=bad_now, present=present
        )

    def require_few_set_aside(self, rule: Rule) -> None:
        """Raise InputError if more rows than f cannot be used."""
        if rule.robust and self.charged + self.bad > self.f:
            who = ", ".join(f"{row} ({why})" for row, why in sorted(self.set_aside.items()))
            raise InputError(
                f"{rule.name} tolerates f={self.f} faults among n={self.n} rows, but "
                f"{len(self.set_aside)} cannot be used: rows {who}. Raise f or find out why they "
                "fail."
            )
        if not len(self.places):
            raise InputError(f"{rule.name}: there are no rows to aggregate, all are missing.")

    def faults(self, rule: Rule) -> int:
        """f′, the faults that the rows left are aggregated for; InputError if they are too few."""
        most = self.f - self.bad if rule.robust else self.f
        least = most - self.charged if rule.robust else self.f
        coordinate, values = None, len(self.places)
        if self.present is not None:
            coordinate, values = fewest_values(self.present, enough=rule.needs(most))
        if values >= rule.needs(most):
            return most
        told = rule.max_f(values)
        if told < least or not rule.robust:
            raise InputError(self._too_few(rule, least, coordinate, values))
        return told

    def _too_few(self, rule: Rule, f: int, coordinate: int | None, values: int) -> str:
        needed = rule.needs(f)
        if coordinate is None:
            return (
                f"{rule.name} needs {needed} rows to tolerate f={f} faults, and {values} of "
                f"n={self.n} are left. Wait for more replies or lower f."
            )
        return (
            f"{rule.name} needs {needed} values in every coordinate to tolerate f={f} faults, and "
            f"of coordinate {coordinate} only {values} arrived from n={self.n} rows. Lose less, "
            "have more rows, or lower f."
        )

    def place(self, rule: Rule, row: int) -> int:
        """Where one of the caller's rows stands among those that are left."""
        places = np.flatnonzero(self.places == row)
        if not len(places):
            raise InputError(
                f"{rule.name}: row {row}, the reference, is missing or not finite, and nothing can "
                "take its place. Give another row or a vector as reference, or none."
            )
        return int(places[0])

    def explain(self, choice: Choice, vector: Vector, f: int) -> Explained:
        """What was decided, by the caller's positions."""
        trusted = None if choice.trusted is None else tuple(self.places[choice.trusted].tolist())
        left_out = None if trusted is None else tuple(i for i in range(self.n) if i not in trusted)
        weights, scores = self._spread(choice.weights, 0.0), self._spread(choice.scores, np.nan)
        return Explained(vector, trusted, left_out, self.set_aside, weights, scores, f)

    def _spread(self, values: Any, empty: float) -> Any:
        if values is None or len(values) != len(self.places):
            return None
        whole = np.full(self.n, empty)
        whole[self.places] = values
        return whole
