"""Devices that lie: about what they have learned, about what they have, or in their labels.

The attacks on vectors are the library's (`garfield.attacks`), told on the *change* of
parameters that an honest device would have sent; one that is omniscient sees the honest changes
of its round. Lies about metadata are of two kinds:

    large   as many samples as the ten largest honest devices together, in everybody's proportions:
            asked first, and weighed most
    rare    as many samples of the rarest class as all others have together, and of no other:
            wanted whenever that class is short
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from garfield.attacks import Attack, View
from garfield.core.registry import Registry
from garfield.core.types import Floats, Vector
from garfield.fedgan.averaging import State
from garfield.fedgan.device import Update
from garfield.fedgan.joining import Layout
from garfield.fedgan.partition import Counts
from garfield.gars import parse

Claim = Callable[[Counts], npt.NDArray[np.int64]]
"""(honest devices, classes) counts to what every liar declares, (classes,)."""

METADATA_ATTACKS: Registry[Claim] = Registry("a lie about metadata")


def large(honest: Counts) -> npt.NDArray[np.int64]:
    """Everybody's proportions, ten times the size of the largest."""
    shares = honest.sum(axis=0) / honest.sum()
    most = np.sort(honest.sum(axis=1))[-10:].sum()
    return np.asarray(np.maximum(1, shares * most), dtype=np.int64)


def rare(honest: Counts) -> npt.NDArray[np.int64]:
    """The rarest class alone."""
    totals = honest.sum(axis=0)
    claimed = np.zeros(len(totals), dtype=np.int64)
    claimed[int(totals.argmin())] = max(1, int(totals.min()))
    return claimed


METADATA_ATTACKS.add("large", large)
METADATA_ATTACKS.add("rare", rare)


@dataclass(eq=False)
class Liars:
    """Devices that lie about what they have learned, together."""

    attack: Attack
    devices: frozenset[int]
    layout: Layout
    gar: str | None = None
    """The rule that the server applies, for attacks that know it."""
    f: int = 0
    """How many faults that rule is set up for."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What they noted in earlier rounds."""

    def told(
        self, before: State, asked: Sequence[int], honest: Sequence[Update | None],
        rng: np.random.Generator,
    ) -> list[Update | None]:  # fmt: skip
        """What the devices of a round send, some of them lying; None for silence.

        Each liar has trained honestly to know what it would have sent.
        """
        lying = [place for place, device in enumerate(asked) if device in self.devices]
        changes = {
            place: self.layout.change(before, update.state)
            for place, update in enumerate(honest)
            if update is not None
        }
        if not lying or not changes:
            return list(honest)
        rows = [change for place, change in changes.items() if place not in lying]
        seen = np.stack(rows or list(changes.values()))  # a round may have liars only
        told = list(honest)
        for rank, place in enumerate(each for each in lying if each in changes):
            view = View(
                own=changes[place], honest=seen, n=max(len(asked), len(lying) + 1), f=len(lying),
                rank=rank, rng=rng, defence=self._defence(), memory=self.memory,
            )  # fmt: skip
            told[place] = self._lie(before, honest[place], self.attack(view))
        return told

    def _defence(self) -> Callable[[Any], Vector] | None:
        if self.gar is None:
            return None
        rule, f = parse(self.gar), self.f
        return lambda rows: rule(rows, f=f)

    def _lie(self, before: State, honest: Update | None, lie: Floats | None) -> Update | None:
        if lie is None or honest is None:
            return None
        return replace(honest, state=honest.state | self.layout.changed(before, lie))
