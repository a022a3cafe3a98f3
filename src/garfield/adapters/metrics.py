"""What a model is judged by: a number of its outputs and the targets, and which way is better.

A metric that is a mean over samples is added up batch by batch. One of a user's own need not be
(an F1 score is not): it is given all outputs and targets of the test set at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

from garfield.core.blame import blamed_on
from garfield.core.errors import InputError
from garfield.core.registry import Registry

METRICS: Registry[Metric] = Registry("a metric")


@dataclass(frozen=True)
class Metric:
    """A way to judge outputs by their targets."""

    name: str
    larger_is_better: bool = True
    summed: Callable[[Any, Any], float] | None = None
    """Adds up some outputs and targets; the metric is what all of them come to, by number."""
    whole: Callable[[Any, Any], float] | None = None
    """Where it is no sum: the metric of all outputs and targets together."""
    of_mean: Callable[[float], float] = lambda mean: mean

    @property
    def is_accuracy(self) -> bool:
        """Whether it is the share of right predictions, which is shown in per cent."""
        return self.name == ACCURACY.name


class Scoring:
    """The score of one evaluation, batch after batch."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._sum: float = 0
        self._count = 0
        self._kept: list[tuple[Any, Any]] = []

    def take(self, outputs: Any, targets: Any) -> None:
        """Note what a model made of a batch."""
        if self._metric.summed is None:
            self._kept.append((outputs, targets))
        else:
            self._sum += self._metric.summed(outputs, targets)
            self._count += targets.numel()

    def score(self, joined: Callable[[list[Any]], Any]) -> float:
        """The score of all batches; `joined` makes one tensor of many."""
        metric = self._metric
        if metric.whole is None:
            return metric.of_mean(self._sum / max(self._count, 1))
        outputs, targets = (joined(list(parts)) for parts in zip(*self._kept, strict=True))
        with blamed_on(f"The metric {metric.name}"):
            value = metric.whole(outputs, targets)
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):
            raise InputError(
                f"The metric {metric.name} gave {_described(value)}, and must give one number."
            ) from None


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + (f" of shape {tuple(shape)}" if shape is not None else "")


def _right(outputs: Any, targets: Any) -> int:
    wanted = targets.argmax(dim=1) if targets.shape == outputs.shape else targets
    return int((outputs.argmax(dim=1) == wanted).sum())


def _off(outputs: Any, targets: Any) -> Any:
    """How far each output is from its target; one output a sample may stand in a column."""
    column = outputs.shape == (*targets.shape, 1)
    return (outputs.squeeze(-1) if column else outputs).double() - targets.double()


def _squares(outputs: Any, targets: Any) -> float:
    return float(_off(outputs, targets).square().sum())


ACCURACY = METRICS.add("accuracy", Metric("accuracy", True, _right))
METRICS.add("mse", Metric("mse", False, _squares))
METRICS.add("rmse", Metric("rmse", False, _squares, of_mean=sqrt))
METRICS.add("mae", Metric("mae", False, lambda outputs, y: float(_off(outputs, y).abs().sum())))
