"""How evaluations are told: what the fields of their events are.

Accuracy stands under its own name, as it always has. Of any other metric an event says the score,
which metric it is, and which way is better, so that whoever reads it needs no settings for it.
"""

from __future__ import annotations

from typing import Any

from garfield.adapters.metrics import Metric


def evaluation(metric: Metric, score: float, loss: float) -> dict[str, Any]:
    """The fields of an event that tell of an evaluation."""
    if metric.is_accuracy:
        return {"accuracy": score, "loss": loss}
    named = {"metric": metric.name, "larger_is_better": metric.larger_is_better}
    return {"score": score, **named, "loss": loss}
