"""Evaluate a server's model beside its training, on a copy, in a thread of its own.

A server that evaluated between two steps kept its peers waiting for longer than `timeout_s`:
they took it for dead, and of the two servers left one lied, so that a run which tolerates one
liar was lost. `runs/background.py` says what is waited for all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from garfield.adapters.contract import Adapter
from garfield.adapters.metrics import ACCURACY, Metric
from garfield.launch.evaluations import evaluation
from garfield.nodes.server import Server
from garfield.runs.background import BackgroundWork

ScoreAndLoss = tuple[float, float]
"""What the metric says (the share of right predictions, as a rule), and the mean loss."""


class BackgroundEvaluator:
    """Makes one evaluation at a time. Use as a context: leaving it gives up what is not done."""

    def __init__(
        self, new_model: Callable[[], Adapter], patience_s: float, metric: Metric = ACCURACY
    ) -> None:
        """`new_model` makes the one that is evaluated; training waits for evaluations until one
        takes longer than `patience_s`, and for none from then on."""
        self._new_model, self._metric = new_model, metric
        self._model: Adapter | None = None
        self._work = BackgroundWork[ScoreAndLoss](patience_s, "garfield-evaluation")

    def __enter__(self) -> BackgroundEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self._work.give_up()

    def begin(self, server: Server, about: Mapping[str, Any]) -> None:
        """Evaluate what the server's model is now; the result before must have been taken.

        `about` is what `result` gives besides: of which step it is, say.
        """
        if self._model is None:  # made here: a model draws from the one random state there is
            self._model = self._new_model()
        model = self._model
        assert not self.busy()  # or it would be written to while it is evaluated
        model.write(server.read_model())
        self._work.begin(lambda: model.evaluate(self._work.until_given_up(server.test)), about)

    def busy(self) -> bool:
        """Whether the evaluation before is not done."""
        return self._work.busy()

    def result(self, *, patiently: bool = False) -> dict[str, Any] | None:
        """Take the result of the evaluation that is done; with `patiently`, wait for it first.

        None if there is none, or it was taken already.
        """
        taken = self._work.result(patiently=patiently)
        if taken is None:
            return None
        about, (score, loss) = taken
        return {**about, **evaluation(self._metric, score, loss)}
