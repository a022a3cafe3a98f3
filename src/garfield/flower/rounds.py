"""A round of Flower's, decided: one model of many replies, and who was left out, and why.

Replies are models by the name of their node: dicts or lists of arrays. A node that was asked and
did not answer is silent; one whose reply cannot be read is faulty, as one is that sends NaN or
another shape. Where the rule cannot answer, the round is refused in words and nothing changes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from garfield.core.errors import BoundError, GarfieldError
from garfield.gars import Aggregator, Rule, init, parse


@dataclass(frozen=True)
class Outcome:
    """What became of a round."""

    model: Any | None
    """What the rule made of the replies; None if the round was refused."""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Nodes that have no part in the model, each with the reason."""
    silent: int = 0
    """How many nodes were asked and did not answer, or answered with an error."""
    refused: str | None = None
    """Why there is no model."""


class RobustRounds:
    """A rule for f faults, and what it remembers from round to round."""

    def __init__(self, gar: str, f: int) -> None:
        self.rule: Rule = parse(gar)
        self.f = f
        self.rule.needs(f)  # refuses an f that is no number of faults
        self._aggregator: Aggregator | None = None

    def require(self, fewest: int | None, strategy: str, setting: str) -> None:
        """BoundError if a round may ask fewer nodes than the rule needs."""
        needed = self.rule.needs(self.f)
        if fewest is not None and fewest < needed:
            raise BoundError(
                f"{self.rule.name} needs n >= {needed} nodes a round to tolerate f={self.f} "
                f"faults, and {strategy} may ask only {fewest}. Give it {setting}={needed} or "
                "more, or lower f."
            )

    def aggregate(
        self,
        models: Mapping[str, Any],
        *,
        asked: int,
        unreadable: Mapping[str, str],
        start: Any = None,
    ) -> Outcome:
        """One model of those that came.

        `unreadable` are nodes that sent something else, and what is wrong with it. `start` is the
        model that nodes began with: a rule that is not the same wherever the origin lies
        (clipping, say) is given changes.
        """
        names = [*models, *unreadable]
        n = max(asked, len(names))
        silent = n - len(names)
        changes = start is not None and not self.rule.translates
        rows = [_minus(model, start) if changes else model for model in models.values()]
        rows += [_Unreadable()] * len(unreadable) + [None] * silent
        try:
            if not models:
                raise BoundError(f"None of {n} nodes sent a model.")
            found = self._for(n).aggregate(rows, explain=True)
        except GarfieldError as refusal:
            who = f" Rows are the nodes {', '.join(names)}, in this order." if models else ""
            return Outcome(None, dict(unreadable), silent, f"{refusal}{who}")
        aside = {names[i]: why for i, why in found.set_aside.items() if i < len(names)}
        left = [names[i] for i in found.left_out or () if i < len(names)]
        distrusted = dict.fromkeys(left, f"not trusted by {self.rule.name}")
        model = _plus(found.vector, start) if changes else found.vector
        return Outcome(model, {**distrusted, **aside, **unreadable}, silent)

    def _for(self, n: int) -> Aggregator:
        if self._aggregator is None or self._aggregator.n != n:
            self._aggregator = init(self.rule, n, self.f)
        return self._aggregator


class _Unreadable:
    """Stands for what a node sent and nobody could read."""


def middle(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of each metric that most nodes report, the median: one node's claim does not move it far.

    Lists are taken number by number, if most are of one length. What is not finite, and what is no
    number, is left out.
    """
    counts = Counter(key for record in records for key in record)
    common = [key for key, count in counts.items() if 2 * count > len(records)]
    medians = {key: _middle([record[key] for record in records if key in record]) for key in common}
    return {key: value for key, value in medians.items() if value is not None}


def _middle(values: Sequence[Any]) -> Any:
    lists = [value for value in values if isinstance(value, list)]
    if 2 * len(lists) > len(values):
        length, _ = Counter(map(len, lists)).most_common(1)[0]
        alike = [each for each in lists if len(each) == length]
        parts = [_middle(part) for part in zip(*alike, strict=True)]
        return None if None in parts else parts
    numbers = [value for value in values if _is_finite(value)]
    return median(numbers) if numbers else None


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _minus(model: Any, start: Any) -> Any:
    return _combined(model, start, -1)


def _plus(model: Any, start: Any) -> Any:
    return _combined(model, start, 1)


def _combined(model: Any, start: Any, sign: int) -> Any:
    """Floats of a model plus or minus those of another, where both have them."""
    if isinstance(model, Mapping) and isinstance(start, Mapping) and set(model) == set(start):
        return {key: _combined(part, start[key], sign) for key, part in model.items()}
    if isinstance(model, list) and isinstance(start, list) and len(model) == len(start):
        pairs = zip(model, start, strict=True)
        return [_combined(part, other, sign) for part, other in pairs]
    return model + sign * start if _addable(model, start) else model


def _addable(one: Any, other: Any) -> bool:
    if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
        return False
    alike = one.shape == other.shape and one.dtype == other.dtype
    return alike and np.issubdtype(one.dtype, np.floating)
