"""Robust aggregation for strategies of `flwr.serverapp`, which exchange messages.

The wrapped strategy is handed one reply: the rule's model, with the medians of what nodes report.
Its own checks and averages then have nothing left to go wrong with.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from garfield.flower.rounds import Outcome, RobustRounds, middle
from garfield.flower.telling import announce, tell

EXCLUDED, SILENT = "excluded-nodes", "silent-nodes"
"""Keys of a round's metrics: ids of nodes that have no part in the model, and a count."""


class RobustMessages(Strategy):  # type: ignore[misc]  # flwr is not in every environment
    """A strategy whose arrays are aggregated by a rule; all else is the wrapped one's."""

    def __init__(self, strategy: Strategy, gar: str, f: int) -> None:
        self.strategy = strategy
        self.rounds = RobustRounds(gar, f)
        fewest = getattr(strategy, "min_train_nodes", None)
        if getattr(strategy, "fraction_train", 1.0):
            self.rounds.require(fewest, type(strategy).__name__, "min_train_nodes")
        self.last: Outcome | None = None
        """What the last round of training came to."""
        self._asked = 0
        self._start: dict[str, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "strategy":
            raise AttributeError(name)  # while it is copied, say
        return getattr(self.strategy, name)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: Any, grid: Any
    ) -> Iterable[Any]:
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._asked = len(messages)
        if not self.rounds.rule.translates:
            self._start = {key: array.numpy() for key, array in arrays.items()}
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Any]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        answered = {str(reply.metadata.src_node_id): reply for reply in replies if _usable(reply)}
        models, unreadable = _models(answered)
        outcome = self.rounds.aggregate(
            models, asked=self._asked, unreadable=unreadable, start=self._start
        )
        self.last = outcome
        tell(server_round, self.rounds.rule.name, outcome)
        if outcome.model is None:
            return None, None
        trusted = [reply for name, reply in answered.items() if name not in outcome.excluded]
        trusted = trusted or [answered[next(iter(models))]]
        one = self._one_reply(trusted, outcome.model)
        arrays, metrics = self.strategy.aggregate_train(server_round, [one])
        metrics = MetricRecord() if metrics is None else metrics
        metrics[EXCLUDED] = [int(name) for name in outcome.excluded]
        metrics[SILENT] = outcome.silent
        return _in_dtypes_of(outcome.model, arrays), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: Any, grid: Any
    ) -> Iterable[Any]:
        messages: Iterable[Any] = self.strategy.configure_evaluate(
            server_round, arrays, config, grid
        )
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Any]) -> MetricRecord | None:
        answered = [reply for reply in replies if _usable(reply) and _metrics(reply) is not None]
        handed = [self._one_reply(answered, None)] if answered else []
        return self.strategy.aggregate_evaluate(server_round, handed)

    def summary(self) -> None:
        announce(self.rounds, type(self.strategy).__name__)
        self.strategy.summary()

    def _one_reply(self, replies: list[Any], model: Any) -> Any:
        """A reply in the name of some: this model, and the medians of what they report."""
        weight = getattr(self.strategy, "weighted_by_key", "num-examples")
        records = [record for reply in replies if (record := _metrics(reply)) is not None]
        metrics = MetricRecord({**middle(records), weight: 1})
        content = RecordDict({"metrics": metrics})
        if model is not None:
            key = getattr(self.strategy, "arrayrecord_key", "arrays")
            content[key] = ArrayRecord({k: Array(np.asarray(v)) for k, v in model.items()})
        one = copy.copy(replies[0])
        one.content = content
        return one


def _usable(reply: Any) -> bool:
    return bool(reply.has_content())


def _metrics(reply: Any) -> dict[str, Any] | None:
    records = list(reply.content.metric_records.values())
    return dict(records[0]) if len(records) == 1 else None


def _models(replies: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Models by node, and what is wrong with those that are none."""
    models, unreadable = {}, {}
    for name, reply in replies.items():
        records = list(reply.content.array_records.values())
        if len(records) != 1:
            unreadable[name] = f"unreadable: {len(records)} array records instead of one"
            continue
        try:
            models[name] = {key: array.numpy() for key, array in records[0].items()}
        except Exception as error:  # whatever a stranger's bytes may raise
            unreadable[name] = f"unreadable: {type(error).__name__}: {error}"
    return models, unreadable


def _in_dtypes_of(model: dict[str, Any], arrays: ArrayRecord | None) -> ArrayRecord | None:
    """The strategy's answer in the dtypes of the rule's: means make floats of integers."""
    if arrays is None:
        return None
    for key, array in arrays.items():
        wanted = np.asarray(model[key]).dtype if key in model else None
        if wanted is not None and array.dtype != str(wanted):
            arrays[key] = Array(array.numpy().astype(wanted))
    return arrays
