"""The adversary of a run: who lies, by which plan, and what the liars know of the honest.

What omniscient liars know comes to them by the experiment's own channel (`nodes/spied.py`),
opened at exactly those nodes whose vectors the declared attack is made of. Without such an
attack in the run's settings it stays shut.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from garfield.apps.groups import NONE
from garfield.apps.settings import Settings
from garfield.nodes.byzantine import LyingOutbox
from garfield.nodes.outbox import Outbox
from garfield.nodes.plan import Notes, Plan, Spy, drawn, parse_plan
from garfield.nodes.spied import SPIED, is_spied, spied
from garfield.transport.contract import Key, Payload, Transport, Until, all_of, first

HEAD_START_S = 1e-4
"""How much longer the honest take to hear each other than liars do, in the simulated network of an
asynchronous run: of all schedules that such a network allows, one on the liars' side."""
SIMULATED_GLANCE_S = 1.5 * HEAD_START_S
"""How long an omniscient liar looks for honest rows there. It has its model a head start before the
honest, whose rows take another one to arrive: so it sees all of them, and is heard before."""
GLANCE_S = 0.02
"""How long it looks over a real network."""


@dataclass(frozen=True)
class Adversary:
    """The liars of one run, as far as they are in this process."""

    settings: Settings
    _notes: dict[tuple[str, ...], Notes] = field(default_factory=dict)

    def outbox(self, name: str, transport: Transport) -> Outbox:
        """A node's outbox: one that lies, where the settings say so."""
        alike, attack = self._kin(name)
        lies = attack != NONE and name in self._liars(alike)
        outbox = LyingOutbox(self._plan(name, transport), name) if lies else Outbox()
        outbox.spied_by = self.spies_on(name)
        return outbox

    def unheard(self, name: str) -> bool:
        """Whether nobody will ever see this liar's gradient, nor anything made of it."""
        alike, attack = self._kin(name)
        return attack != NONE and name in self._liars(alike) and parse_plan(attack).unheard

    def spies_on(self, name: str) -> frozenset[str]:
        """The liars who must see what this node sends, to make up the lies that are declared."""
        s = self.settings
        found: set[str] = set()
        if name in s.worker_names and _knows_all(s.faults.worker_attack):
            found.update(self._liars(s.worker_names))
        if _knows_all(s.faults.server_attack):  # of its peers' models, and of workers' gradients
            found.update(self._liars(s.server_names))
        return frozenset(found)

    def delay_s(self, asker: str, peer: str, key: Key) -> float:
        """How long a reply takes in simulation: in an asynchronous run, liars are the first.

        A synchronous network is everybody's alike.
        """
        if not self.settings.rounds.asynchronous or asker == peer or is_spied(key):
            return 0.0
        lying = self._lying_at(key.step)
        return 0.0 if not lying or asker in lying or peer in lying else HEAD_START_S

    def _lying_at(self, step: int) -> frozenset[str]:
        if not self._redrawn:
            return self._lasting
        s = self.settings
        return self._lasting.union(drawn(s.worker_names, s.faults.byzantine_workers, s.seed, step))

    @cached_property  # asked for with every message of a simulation
    def _lasting(self) -> frozenset[str]:
        return frozenset(self.settings.liars)

    @cached_property
    def _redrawn(self) -> bool:
        return self.settings.faults.redrawn

    def _kin(self, name: str) -> tuple[tuple[str, ...], str]:
        """All nodes that send what this one sends, and the attack of those who lie."""
        s = self.settings
        if name in s.worker_names:  # and maybe a server too, where there are no others
            return s.worker_names, s.faults.worker_attack
        return s.server_names, s.faults.server_attack

    def _liars(self, names: Sequence[str]) -> list[str]:
        """Who of them lies, or may be drawn to."""
        redrawn = self._redrawn and tuple(names) == self.settings.worker_names
        return [name for name in names if redrawn or name in self._lasting]

    def _honest(self, names: tuple[str, ...]) -> Callable[[int], list[str]]:
        """Who of them tells the truth at a step."""
        return lambda step: [name for name in names if name not in self._lying_at(step)]

    def _plan(self, name: str, transport: Transport) -> Plan:
        s = self.settings
        alike, attack = self._kin(name)
        liars, redrawn = self._liars(alike), parse_plan(attack).timing.redrawn
        honest = [each for each in (*s.server_names, *s.worker_names) if each not in self._lasting]
        gradients = _spy(transport, self._honest(s.worker_names), s, all_of)
        known = Plan(
            n=len(alike), f=s.faults.byzantine_workers if redrawn else len(liars),
            rank=0 if redrawn else liars.index(name), seed=s.seed, timeout_s=s.rounds.timeout_s,
            spy=_spy(transport, self._honest(alike), s), remembers=s.rounds.asynchronous,
            hasty=s.rounds.asynchronous and not s.simulate,
            defence=self._defence(name), askers=tuple(dict.fromkeys(honest)), suspects=alike,
            gradients=gradients if name in s.server_names else None, rate=s.learning.rate,
            notes=self._notes.setdefault(alike, Notes()),
        )  # fmt: skip
        return parse_plan(attack, known)

    def _defence(self, name: str) -> Callable[[Any], Any]:
        """What the honest will do to the rows: for attacks that aim at it."""
        s = self.settings
        numbers, liars = s.numbers, len(self._liars(self._kin(name)[0]))
        if name in s.worker_names:
            rule, f, quorum = s.rule, numbers.f_w, numbers.q_w
        else:
            rule, f, quorum = s.model_rule, numbers.f_ps, numbers.q_ps
        return lambda rows: rule(_filled(list(rows), liars, quorum), f=f)


def _knows_all(attack: str) -> bool:
    return attack != NONE and parse_plan(attack).knows_all


def _filled(rows: list[Any], liars: int, quorum: int) -> list[Any]:
    """As many rows as the rule will get, where fewer honest ones were seen: some of them again."""
    honest = rows[: len(rows) - liars]
    missing = max(0, quorum - len(rows))
    return [*(honest[i % len(honest)] for i in range(missing)), *rows] if honest else rows


def _two_of(names: Collection[str]) -> Until:
    return first(min(2, len(names)))


def _spy(
    transport: Transport,
    honest: Callable[[int], list[str]],
    settings: Settings,
    enough: Callable[[Collection[str]], Until] = _two_of,
) -> Spy:
    """What the honest have published under a key, by the experiment's channel.

    In a synchronous run everybody waits for everybody, and so does the spy, but not for so long
    that its lie comes too late. In an asynchronous one whoever waits does: the spy takes what there
    is (`enough` of it, over a real network).
    """
    rounds, met = settings.rounds, set[str]()
    until: Callable[[Collection[str]], Until] = all_of
    glance_s = rounds.timeout_s / 2
    if rounds.asynchronous:
        glance_s = SIMULATED_GLANCE_S if settings.simulate else GLANCE_S
        until = all_of if settings.simulate else enough

    def look(key: Key, length: int) -> Mapping[str, Payload] | None:
        names = honest(key.step)
        if key.kind not in SPIED or not names:
            return None
        # at first there is nothing to remember, and so no lie without waiting
        patience_s = glance_s if key.kind in met else rounds.timeout_s / 2
        found = transport.pull(
            names, spied(key), length=length, until=until(names), timeout_s=patience_s
        )
        met.update([key.kind] if found.names else [])
        return dict(zip(found.names, found.rows, strict=True)) or None

    return look
