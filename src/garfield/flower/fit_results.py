"""Robust aggregation for strategies of `flwr.server`, which gather the results of `fit`.

The wrapped strategy is handed one result: the rule's model, with the medians of what clients
report.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import Strategy

from garfield.flower.rounds import Outcome, RobustRounds, middle
from garfield.flower.telling import tell


class RobustFitResults(Strategy):  # type: ignore[misc]  # flwr is not in every environment
    """A strategy whose parameters are aggregated by a rule; all else is the wrapped one's."""

    def __init__(self, strategy: Strategy, gar: str, f: int) -> None:
        self.strategy = strategy
        self.rounds = RobustRounds(gar, f)
        fewest = getattr(strategy, "min_fit_clients", None)
        self.rounds.require(fewest, type(strategy).__name__, "min_fit_clients")
        self.last: Outcome | None = None
        """What the last round of training came to."""
        self._asked = 0
        self._start: list[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "strategy":
            raise AttributeError(name)  # while it is copied, say
        return getattr(self.strategy, name)

    def initialize_parameters(self, client_manager: Any) -> Any:
        return self.strategy.initialize_parameters(client_manager)

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        asked = self.strategy.configure_fit(server_round, parameters, client_manager)
        self._asked = len(asked)
        if not self.rounds.rule.translates:
            self._start = parameters_to_ndarrays(parameters)
        return asked

    def aggregate_fit(
        self, server_round: int, results: list[Any], failures: list[Any]
    ) -> tuple[Any, dict[str, Any]]:
        answered = {str(client.cid): (client, result) for client, result in results}
        models, unreadable = _models(answered)
        asked = max(self._asked, len(results) + len(failures))
        outcome = self.rounds.aggregate(
            models, asked=asked, unreadable=unreadable, start=self._start
        )
        self.last = outcome
        tell(server_round, self.rounds.rule.name, outcome)
        if outcome.model is None:
            return None, {"refused": outcome.refused or ""}
        trusted = [pair for name, pair in answered.items() if name not in outcome.excluded]
        trusted = trusted or [answered[next(iter(models))]]
        client, result = trusted[0]
        one = replace(
            result,
            parameters=ndarrays_to_parameters(outcome.model),
            num_examples=1,
            metrics=middle([each.metrics or {} for _, each in trusted]),
        )
        parameters, metrics = self.strategy.aggregate_fit(server_round, [(client, one)], [])
        why = [f"{name} ({reason})" for name, reason in outcome.excluded.items()]
        return parameters, {**metrics, "excluded": ", ".join(why), "silent": outcome.silent}

    def configure_evaluate(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)

    def aggregate_evaluate(
        self, server_round: int, results: list[Any], failures: list[Any]
    ) -> tuple[float | None, dict[str, Any]]:
        losses = middle([{"loss": result.loss} for _, result in results])
        if losses:
            client, first = results[0]
            metrics = middle([result.metrics or {} for _, result in results])
            one = replace(first, loss=losses["loss"], num_examples=1, metrics=metrics)
            results = [(client, one)]
        found: tuple[float | None, dict[str, Any]] = self.strategy.aggregate_evaluate(
            server_round, results if losses else [], failures
        )
        return found

    def evaluate(self, server_round: int, parameters: Any) -> Any:
        return self.strategy.evaluate(server_round, parameters)


def _models(answered: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Models by client, and what is wrong with those that are none."""
    models, unreadable = {}, {}
    for name, (_, result) in answered.items():
        try:
            models[name] = parameters_to_ndarrays(result.parameters)
        except Exception as error:  # whatever a stranger's bytes may raise
            unreadable[name] = f"unreadable: {type(error).__name__}: {error}"
    return models, unreadable
