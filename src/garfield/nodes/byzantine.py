"""Byzantine nodes: the honest node behind an outbox that lies.

The honest code is unchanged. A lie is made up when the honest vector is
published, from what the attack may know; `answer` then says it, to everybody
alike or, for an attack that equivocates, differently to each asker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from zlib import crc32

import numpy as np

from garfield.attacks import ATTACKS, Attack, View
from garfield.core.errors import UnknownName
from garfield.core.naming import parse_call
from garfield.nodes.outbox import Outbox
from garfield.nodes.server import Server
from garfield.nodes.worker import Worker
from garfield.transport.contract import Answer, Key, NotYet, Payload, Ready

Behaviour = Literal["stall", "drip", "wrong-shape", "equivocate"]
BEHAVIOURS: dict[str, str] = {
    "stall": "takes every request and never answers",
    "drip": "answers at 8 kbit/s",
    "wrong-shape": "sends half of the vector",
    "equivocate": "tells every asker a different lie",
}
DRIP_BPS = 8_000.0

Spy = Callable[[Key, int], "np.ndarray[Any, Any] | None"]
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

    def rng(self, key: Key, asker: str = "") -> np.random.Generator:
        """Fresh for every key (and asker), and the same in every run of this seed."""
        who = crc32(f"{key.kind}/{asker}".encode())
        return np.random.default_rng([self.seed, self.rank, key.step, key.round, who])


def parse_plan(text: str, **known: Any) -> Plan:
    """A plan from "reverse", "reverse(factor=-10)" or a behaviour such as "stall"."""
    name, params = parse_call(text, example="reverse(factor=-10)")
    if name in BEHAVIOURS:
        return Plan(behaviour=name, **known)  # type: ignore[arg-type]  # one of its literals
    if name not in ATTACKS:
        raise UnknownName("an attack", name, [*ATTACKS, *BEHAVIOURS])
    return Plan(attack=ATTACKS[name].bind(**params), **known)


class LyingOutbox(Outbox):
    """Keeps the truth, and says something else."""

    def __init__(self, plan: Plan, name: str, **outbox: Any) -> None:
        super().__init__(**outbox)
        self.plan = plan
        self.name = name
        """Whose it is: a node does not lie to itself."""
        self._lies: dict[Key, Payload | None] = {}

    def publish(self, key: Key, vector: Payload) -> None:
        self._lies = {k: lie for k, lie in self._lies.items() if k.step > key.step - self._kept}
        self._lies[key] = self._lie(key, vector)
        super().publish(key, vector)

    def answer(self, asker: str, key: Key) -> Answer:
        truth = super().answer(asker, key)
        if not isinstance(truth, Ready) or asker == self.name:
            return truth
        match self.plan.behaviour:
            case "stall":
                return NotYet()
            case "drip":
                return Ready(truth.payload, pace_bps=DRIP_BPS)
            case "wrong-shape":
                return Ready(truth.payload[: len(truth.payload) // 2])
            case "equivocate":
                noise = self.plan.rng(key, asker).standard_normal(len(truth.payload))
                return Ready(noise.astype(np.float32))
        lie = self._lies.get(key)
        return NotYet() if lie is None else Ready(lie)

    def _lie(self, key: Key, vector: Payload) -> Payload | None:
        plan = self.plan
        if plan.attack is None:
            return vector
        view = View(
            own=np.array(vector), honest=self._seen(key, len(vector)),
            n=plan.n, f=plan.f, rank=plan.rank, rng=plan.rng(key), defence=plan.defence,
        )  # fmt: skip
        if plan.attack.knows == "all" and view.honest is None:
            return vector  # nothing was seen to lie about: pass for honest this time
        lie = plan.attack(view)
        if lie is None:
            return None
        lie = np.asarray(lie, dtype=np.float32)
        lie.setflags(write=False)
        return lie

    def _seen(self, key: Key, length: int) -> Any:
        knows_all = self.plan.attack is not None and self.plan.attack.knows == "all"
        return self.plan.spy(key, length) if knows_all else None


class ByzantineWorker(Worker):
    """A worker whose gradients are lies."""

    def __init__(self, *worker: Any, plan: Plan, **named: Any) -> None:
        outbox = LyingOutbox(plan, named["transport"].name)
        super().__init__(*worker, **{"outbox": outbox, **named})


class ByzantineServer(Server):
    """A server whose models are lies."""

    def __init__(self, *server: Any, plan: Plan, **named: Any) -> None:
        outbox = LyingOutbox(plan, named["transport"].name)
        super().__init__(*server, **{"outbox": outbox, **named})
