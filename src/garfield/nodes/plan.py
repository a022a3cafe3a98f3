"""Plan: what a Byzantine node says and when, read from a line of text.

``reverse`` · ``reverse(factor=-10), withhold(from=server-1)`` · ``equivocate(attack=mimic), last``

First what is said: an attack on vectors or a behaviour of the node, the truth if it is left
out; then when (`timing.py`), in any order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np

from garfield.attacks import ATTACKS, Attack
from garfield.core.errors import ConfigError, UnknownName
from garfield.core.naming import parse_call, split_at
from garfield.core.types import Floats
from garfield.nodes.timing import ALWAYS, TERMS, Timing, timed
from garfield.transport.contract import Key, Payload

Behaviour = Literal["silence", "stall", "drip", "wrong-shape", "equivocate"]
BEHAVIOURS: dict[str, str] = {
    "silence": "never says anything, as a machine that is off",
    "stall": "begins every answer, and stops after its header",
    "drip": "answers at 8 kbit/s",
    "wrong-shape": "sends half of the vector",
    "equivocate": "tells every asker a different lie: noise, or as in equivocate(attack=reverse)",
}

Spy: TypeAlias = Callable[[Key, int], "Mapping[str, Payload] | None"]
"""The honest rows of a length under a key, by sender, for attacks that know all; None: not to be
had."""


@dataclass
class Notes:
    """What the liars of one process share, from round to round."""

    agreed: dict[tuple[Key, int], Payload | None] = field(default_factory=dict)
    """What they have agreed to say, if it is the same for all, by the side of the askers."""
    memory: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What their attack notes, by the kind of vector."""
    seen: dict[str, Seen] = field(default_factory=dict)
    """The honest rows that they saw last, by the kind of vector."""
    gradients: tuple[int, Floats | None] = (-1, None)
    """The last step whose gradients they looked at, and how each differs from their mean."""


class Seen(NamedTuple):
    """Honest rows, and who sent them."""

    names: tuple[str, ...]
    rows: Floats


@dataclass(frozen=True)
class Plan:
    """What a Byzantine node does: an attack on vectors, or a behaviour of the node, and when."""

    attack: Attack | None = None
    behaviour: Behaviour | None = None
    timing: Timing = ALWAYS
    n: int = 2
    f: int = 1
    rank: int = 0
    seed: int = 0
    timeout_s: float = 10.0
    """How long askers wait for an answer, as far as the liars know."""
    spy: Spy = lambda key, length: None
    remembers: bool = False
    """Whether the rows seen last are kept: where those of a step are too few, they must do."""
    hasty: bool = False
    """Whether to lie at once, about what was seen last, and to look afterwards."""
    defence: Callable[[Any], Any] | None = None
    askers: tuple[str, ...] = ()
    """The honest nodes, whom lies with two faces tell apart: every other one is on a side."""
    suspects: tuple[str, ...] = ()
    """All of whom f are drawn each step, where liars are redrawn."""
    gradients: Spy | None = None
    """The honest gradients of a step, for lying servers: honest ones may all say the same, and a
    lie about it needs a spread to hide in."""
    rate: Callable[[int], float] = lambda step: 1.0
    """The learning rate of a step."""
    notes: Notes = field(default_factory=Notes)

    @property
    def unanimous(self) -> bool:
        """Whether all liars say the same, and make it up of what the honest say alone."""
        return self.attack is not None and self.attack.unanimous and self.attack.knows == "all"

    @property
    def unheard(self) -> bool:
        """Whether nobody will ever see the liar's own vector, nor anything made of it."""
        return self.unanimous and self.behaviour is None and not self.timing.truthful

    @property
    def knows_all(self) -> bool:
        """Whether it is made of what the honest say."""
        return self.attack is not None and self.attack.knows == "all"

    @property
    def two_faced(self) -> bool:
        """Whether half of the askers are told another lie than the others."""
        return self.attack is not None and self.attack.two_faced

    def rng(self, key: Key, asker: str = "") -> np.random.Generator:
        """Fresh for every key (and asker), and the same in every run of this seed."""
        who = crc32(f"{key.kind}/{asker}".encode())
        return np.random.default_rng([self.seed, self.rank, key.step, key.round, who])

    def side(self, asker: str, kind: str) -> int:
        """Which of two faces this asker is shown: 1 or −1.

        Models go down along gradients, so who is shown high models is shown low gradients.
        """
        if not self.two_faced:
            return 1
        known = asker in self.askers
        place = self.askers.index(asker) if known else crc32(asker.encode())
        up = 1 if place % 2 == 0 else -1
        return up if kind in ("model", "proposal") else -up

    def at(self, step: int, name: str) -> Plan | None:
        """The plan of this node at that step; None where it is another's turn to lie."""
        if not self.timing.redrawn:
            return self
        lying = drawn(self.suspects, self.f, self.seed, step)
        return replace(self, rank=lying.index(name)) if name in lying else None


@lru_cache(maxsize=8)
def drawn(suspects: tuple[str, ...], f: int, seed: int, step: int) -> tuple[str, ...]:
    """Who lies at that step, where liars are drawn anew each time: any f of them are as likely."""
    places = np.random.default_rng([seed, 4, step]).permutation(len(suspects))[:f]
    return tuple(suspects[place] for place in sorted(places))


# -- from text ------------------------------------------------------------------------------------


def parse_plan(text: str, plan: Plan | None = None) -> Plan:
    """A plan from "reverse(factor=-10)", "stall", "equivocate(attack=reverse), late(s=0.2)".

    Everything but the attack, the behaviour and the timing is taken from `plan`.
    """
    known = plan or Plan()
    for place, part in enumerate(map(str.strip, split_at(",", text))):
        name, _, inside = part.partition("(")
        if name.strip() in TERMS:
            if inside and not inside.rstrip().endswith(")"):
                raise ConfigError(f"{part} is not understood: its bracket is left open.")
            timing = timed(known.timing, name.strip(), inside.rstrip().removesuffix(")"))
            known = replace(known, timing=timing)
        elif place:
            if name.strip() in (*ATTACKS, *BEHAVIOURS):
                raise ConfigError(f"{text}: one thing is said, then when. Leave out {part}.")
            raise UnknownName("a word about when", name.strip(), TERMS)
        else:
            known = _what(part, known)
    return known


def _what(text: str, known: Plan) -> Plan:
    behaviour, bracket, inside = text.partition("(")
    if behaviour == "equivocate" and bracket:
        base = _BASE.fullmatch(inside)
        if base is None:
            raise ConfigError(f"{text} is not understood. Write it like {_EQUIVOCATE}.")
        lie = _what(base["lie"], known)
        if lie.behaviour is not None:
            raise ConfigError(f"{text}: equivocate takes an attack on vectors, as {_EQUIVOCATE}.")
        return replace(lie, behaviour="equivocate")
    name, params = parse_call(text, example="reverse(factor=-10)")
    if name in BEHAVIOURS:
        if params:
            raise ConfigError(f"{name} has no parameters, got {', '.join(params)}.")
        return replace(known, behaviour=name)  # type: ignore[arg-type]  # one of its literals
    if name not in ATTACKS:
        raise UnknownName("an attack", name, [*ATTACKS, *BEHAVIOURS, *TERMS])
    return replace(known, attack=ATTACKS[name].bind(**params))


_EQUIVOCATE = "equivocate(attack=reverse(factor=-10))"
_BASE = re.compile(r"""\s*attack\s*=\s*(["']?)(?P<lie>.+)\1\s*\)\s*""")
