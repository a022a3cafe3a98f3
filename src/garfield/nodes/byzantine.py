"""Byzantine nodes: the honest node behind an outbox that lies.

The honest code is unchanged. A lie is made up when the honest vector is
published, from what the attack may know; `answer` then says it, to everybody
alike or, for one that equivocates, differently to each asker.

Equivocation is noise, a fresh one for each asker, or with equivocate(attack=lie)
any other attack at a strength of each asker's own: own + s · (lie − own), s drawn
from [0.5, 1.5]; a lie that is silence is then kept from about half of the askers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

import numpy as np

from garfield.attacks import ATTACKS, Attack, View
from garfield.core.errors import ConfigError, UnknownName
from garfield.core.naming import parse_call
from garfield.nodes.outbox import Outbox
from garfield.nodes.server import Server, ServerArguments
from garfield.nodes.worker import Data, Worker, WorkerArguments
from garfield.transport.contract import Answer, Key, NotYet, Payload, Ready

if TYPE_CHECKING:
    from typing_extensions import Unpack

Behaviour = Literal["silence", "stall", "drip", "wrong-shape", "equivocate"]
BEHAVIOURS: dict[str, str] = {
    "silence": "never says anything, as a machine that is off",
    "stall": "begins every answer, and stops after its header",
    "drip": "answers at 8 kbit/s",
    "wrong-shape": "sends half of the vector",
    "equivocate": "tells every asker a different lie: noise, or as in equivocate(attack=reverse)",
}
STALL_BPS = 1e-3
DRIP_BPS = 8_000.0

Spy = Callable[[Key, int], "Sequence[Payload] | None"]
"""The honest rows of a length under a key, for attacks that know all; None: not to be had."""


@dataclass(frozen=True)
class Plan:
    """What a Byzantine node does: an attack on vectors, or a behaviour of the node."""

    attack: Attack | None = None
    behaviour: Behaviour | None = None
    n: int = 2
    f: int = 1
    rank: int = 0
    seed: int = 0
    spy: Spy = lambda key, length: None
    defence: Callable[[Any], Any] | None = None
    agreed: dict[Key, Payload | None] = field(default_factory=dict)
    """What liars of one process have agreed to say, if it is the same for all of them."""

    @property
    def unanimous(self) -> bool:
        """Whether all liars say the same, and make it up of what the honest say alone."""
        return self.attack is not None and self.attack.unanimous and self.attack.knows == "all"

    def rng(self, key: Key, asker: str = "") -> np.random.Generator:
        """Fresh for every key (and asker), and the same in every run of this seed."""
        who = crc32(f"{key.kind}/{asker}".encode())
        return np.random.default_rng([self.seed, self.rank, key.step, key.round, who])


def parse_plan(text: str, plan: Plan | None = None) -> Plan:
    """A plan from "reverse", "reverse(factor=-10)", "stall" or "equivocate(attack=reverse)".

    Everything but the attack and the behaviour is taken from `plan`.
    """
    known = plan or Plan()
    behaviour, bracket, inside = text.strip().partition("(")
    if behaviour == "equivocate" and bracket:
        base = _BASE.fullmatch(inside)
        if base is None:
            raise ConfigError(f"{text} is not understood. Write it like {_EQUIVOCATE}.")
        lie = parse_plan(base["lie"], known)
        if lie.behaviour is not None:
            raise ConfigError(f"{text}: equivocate takes an attack on vectors, as {_EQUIVOCATE}.")
        return replace(lie, behaviour="equivocate")
    name, params = parse_call(text, example="reverse(factor=-10)")
    if name in BEHAVIOURS:
        if params:
            raise ConfigError(f"{name} has no parameters, got {', '.join(params)}.")
        return replace(known, behaviour=name)  # type: ignore[arg-type]  # one of its literals
    if name not in ATTACKS:
        raise UnknownName("an attack", name, [*ATTACKS, *BEHAVIOURS])
    return replace(known, attack=ATTACKS[name].bind(**params))


_EQUIVOCATE = "equivocate(attack=reverse(factor=-10))"
_BASE = re.compile(r"""\s*attack\s*=\s*(["']?)(?P<lie>.+)\1\s*\)\s*""")


class LyingOutbox(Outbox):
    """Keeps the truth, and says something else."""

    def __init__(self, plan: Plan, name: str) -> None:
        super().__init__()
        self.plan = plan
        self.name = name
        """The node that it belongs to, and does not lie to."""
        self._lies: dict[Key, Payload | None] = {}

    def publish(self, key: Key, vector: Payload, *, copy: bool = True) -> None:
        self._lies = {k: lie for k, lie in self._lies.items() if k.step > key.step - k.kept_steps}
        self._lies[key] = self._lie(key, vector)
        super().publish(key, vector, copy=copy)

    def answer(self, asker: str, key: Key) -> Answer:
        truth = super().answer(asker, key)
        if asker == self.name:
            return truth
        if self.plan.behaviour == "silence":
            return NotYet()
        if not isinstance(truth, Ready):
            return truth
        match self.plan.behaviour:
            case "stall":
                return Ready(truth.payload, pace_bps=STALL_BPS)
            case "drip":
                return Ready(truth.payload, pace_bps=DRIP_BPS)
            case "wrong-shape":
                return Ready(truth.payload[: len(truth.payload) // 2])
            case "equivocate":
                return self._equivocation(asker, key, np.asarray(truth.payload))
        lie = self._lies.get(key)
        return NotYet() if lie is None else Ready(lie)

    def _equivocation(self, asker: str, key: Key, truth: Payload) -> Answer:
        rng = self.plan.rng(key, asker)
        if self.plan.attack is None:
            return Ready(rng.standard_normal(len(truth)).astype(key.dtype))
        strength, lie = rng.uniform(0.5, 1.5), self._lies.get(key)
        if lie is None:
            return NotYet() if strength < 1 else Ready(truth)
        largest = float(np.finfo(key.dtype).max)
        with np.errstate(over="ignore", invalid="ignore"):  # the lie may be infinite, and stays so
            said = truth + strength * (lie.astype(np.float64) - truth)
        said = np.where(np.isfinite(lie), np.clip(said, -largest, largest), lie)
        return Ready(said.astype(key.dtype))

    def _lie(self, key: Key, vector: Payload) -> Payload | None:
        plan = self.plan
        if plan.attack is None:
            return vector
        seen = self._seen(key, len(vector))
        if plan.unanimous and key in plan.agreed:  # made up while this one was looking
            return plan.agreed[key]
        view = View(
            own=np.array(vector), honest=None if seen is None else np.stack(seen),
            n=plan.n, f=plan.f, rank=plan.rank, rng=plan.rng(key), defence=plan.defence,
        )  # fmt: skip
        if plan.attack.knows == "all" and view.honest is None:
            return vector  # nothing was seen to lie about: pass for honest this time
        lie = plan.attack(view)
        if lie is not None:
            lie = np.asarray(lie, dtype=key.dtype)
            lie.setflags(write=False)
        if plan.unanimous:
            for old in [k for k in plan.agreed if k.step <= key.step - k.kept_steps]:
                del plan.agreed[old]
            plan.agreed[key] = lie
        return lie

    def _seen(self, key: Key, length: int) -> Sequence[Payload] | None:
        knows_all = self.plan.attack is not None and self.plan.attack.knows == "all"
        return self.plan.spy(key, length) if knows_all else None


class ByzantineWorker(Worker):
    """A worker whose gradients are lies."""

    def __init__(
        self, model: Any, data: Data, *, plan: Plan, **worker: Unpack[WorkerArguments]
    ) -> None:
        worker.setdefault("outbox", LyingOutbox(plan, worker["transport"].name))
        super().__init__(model, data, **worker)


class ByzantineServer(Server):
    """A server whose models are lies."""

    def __init__(
        self, model: Any, optimizer: Any = None, *, plan: Plan, **server: Unpack[ServerArguments]
    ) -> None:
        server.setdefault("outbox", LyingOutbox(plan, server["transport"].name))
        super().__init__(model, optimizer, **server)
