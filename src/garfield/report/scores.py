"""The score of an evaluation, as an event tells it: accuracy, or a metric by its name."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, nan

from garfield.core.events import Event

ACCURACY = "accuracy"


@dataclass(frozen=True)
class Score:
    """What a model was judged by, and what came out."""

    metric: str
    value: float
    larger_is_better: bool = True

    @property
    def shown(self) -> str:
        """The value in words."""
        return shown(self.metric, self.value)


def score_of(event: Event) -> Score | None:
    """The score that an event tells of; None if it tells of none."""
    if ACCURACY in event:
        return Score(ACCURACY, float(event[ACCURACY]))
    if "score" not in event:
        return None
    value = event["score"]  # what was not finite is null on disk
    number = nan if value is None else float(value)
    return Score(str(event["metric"]), number, bool(event["larger_is_better"]))


def shown(metric: str, value: float | None) -> str:
    """A value of that metric in words: accuracy in per cent."""
    if value is None:
        return "not evaluated"
    if not isfinite(value):
        return "not finite"
    return f"{100 * value:.1f} %" if metric == ACCURACY else f"{value:.4g}"
