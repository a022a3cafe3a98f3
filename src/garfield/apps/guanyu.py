"""GuanYu: servers and workers may lie, and no message has to arrive in time.

The rounds are those of `msmw`, three a step: workers pull models and join them,
servers pull gradients and take a step, servers pull each other's models and join
those. What makes it GuanYu are its rules and numbers, on each side by itself:

    F, for gradients    Multi-Krum
    M, for models       coordinate-wise median in the paper; here the trimmed mean unless said
                        otherwise, at workers and among servers
    n ≥ 3f + 3          so 5 servers with 1 liar are refused
    2f + 3 ≤ q ≤ n − f  replies waited for: no round depends on anybody who may be silent

A third of the machines is the most that an asynchronous network allows. Of models, more than
(n + f) / 2 are waited for besides, or two honest halves could train apart for ever; and the
median lets servers that tell each asker another lie drive honest servers apart, by γG in every
step and without end, where the trimmed mean brings them together (`bearing.py`; n ≥ 5f + 1).

Assumed where the paper leaves a choice: q = n − f unless set, since the upper end lets in the
most honest vectors (the authors' remark, in their lecture on robust distributed learning at
EPFL, that a larger f makes training faster per update fits the lower end, q = 2f + 3). The
learning rate falls as γ / (1 + decay · t): its sum diverges and
that of its squares does not, as the proof wants; the contraction by the median outruns what
liars can add only once steps are small. Momentum stays at the workers, as everywhere here.

El Mhamdi, Guerraoui, Guirguis, Rouault: "SGD: Decentralized Byzantine Resilience", 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from garfield.apps.application import SeveralServers, application
from garfield.apps.msmw import msmw
from garfield.apps.run import Numbers, Run
from garfield.core.errors import BoundError, ConfigError
from garfield.gars import parse
from garfield.nodes.server import Server

if TYPE_CHECKING:
    from garfield.apps.settings import Settings

DECAY = 0.01
"""The learning rate's decay by default: half the rate after 100 steps."""


@dataclass(frozen=True)
class GuanYuSettings:
    """Settings of guanyu alone."""

    gradient_quorum: int = 0
    """How many gradients a server waits for, 2 f + 3 to n - f of them; 0 for n - f."""
    model_quorum: int = 0
    """How many models a node waits for, 2 f + 3 to n - f of them; 0 for n - f."""


class GuanYu(SeveralServers[GuanYuSettings]):
    """Asynchronous, with fixed rules: a third of the servers and of the workers may lie."""

    own = GuanYuSettings
    defaults: Mapping[str, Any] = MappingProxyType(
        {"gar": "multi-krum", "asynchronous": True, "learning_rate_decay": DECAY}
    )

    def numbers(self, settings: Settings) -> Numbers:
        own = self.own_of(settings)
        return replace(
            super().numbers(settings),
            gradient_quorum=own.gradient_quorum,
            model_quorum=own.model_quorum,
        )

    def check(self, settings: Settings) -> None:
        if not settings.rounds.asynchronous:
            raise ConfigError("guanyu is asynchronous. Choose msmw to wait for everybody.")
        for rule, what, its in (
            (parse(self.rule_name(settings)), "gradients", ("multi-krum",)),
            (settings.model_rule, "models", ("trimmed-mean", "median")),
        ):
            if rule.name not in its:
                raise ConfigError(
                    f"guanyu joins {what} by {' or '.join(its)}, got {rule.name}. Choose msmw for "
                    "other rules."
                )
        if not settings.learning.learning_rate_decay > 0:
            raise ConfigError(
                "guanyu converges with a decreasing learning rate only. Set learning_rate_decay "
                f"above 0, to {DECAY} say; the rate at step t is learning_rate / (1 + decay · t)."
            )
        numbers = settings.numbers
        _within("workers", numbers.n_w, numbers.f_w, numbers.q_w, "gradient_quorum")
        _within("servers", numbers.n_ps, numbers.f_ps, numbers.q_ps, "model_quorum")
        super().check(settings)


def _within(who: str, n: int, f: int, q: int, setting: str) -> None:
    if n < 3 * f + 3:
        raise BoundError(
            f"guanyu needs n >= {3 * f + 3} {who} (3f + 3) to tolerate f={f} of them, got n={n}. "
            f"Add {who} or lower f."
        )
    if not 2 * f + 3 <= q <= n - f:
        raise BoundError(
            f"guanyu's {setting} must be within {2 * f + 3}..{n - f} (2f + 3 to n - f) for {n} "
            f"{who} with f={f}, got {q}."
        )


@application("guanyu", GuanYu)
def guanyu(ps: Server, run: Run[GuanYuSettings]) -> None:
    """Asynchronous: up to a third of servers and of workers may lie, and messages be late."""
    msmw(ps, run)
