"""What a round has come to, in lines of Flower's own log."""

from __future__ import annotations

import logging

from garfield.flower.rounds import Outcome, RobustRounds

_log = logging.getLogger("flwr")
_SHOWN = 10


def announce(rounds: RobustRounds, strategy: str) -> None:
    """Write which rule stands in for the mean of a strategy."""
    rule, f = rounds.rule, rounds.f
    _log.info(
        "\t├──> %s for f=%d (n >= %d) in place of the mean of %s:",
        rule.name, f, rule.needs(f), strategy,
    )  # fmt: skip


def tell(server_round: int, rule: str, outcome: Outcome) -> None:
    """Write who was left out of a round, or why there was nothing to make of it."""
    silent = f"; {outcome.silent} silent" if outcome.silent else ""
    if outcome.refused is not None:
        _log.error(
            "Round %d is left out, and the model stays as it was: %s", server_round, outcome.refused
        )
    else:
        _log.info("%s: %d nodes excluded%s", rule, len(outcome.excluded), silent)
    for name, why in list(outcome.excluded.items())[:_SHOWN]:
        _log.warning("\t> node %s excluded: %s", name, why)
    if len(outcome.excluded) > _SHOWN:
        _log.warning("\t> and %d more", len(outcome.excluded) - _SHOWN)
