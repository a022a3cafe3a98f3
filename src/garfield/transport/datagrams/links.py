"""Which links may lose datagrams, which of them are lost on purpose, and what stands for them.

A link is lossy between a server and one of the first workers; gradients travel
on it in blocks, one to a datagram, and models too if so chosen. What is lost on
purpose is a function of the seed, the two ends, the key, the block and how often
it was sent: a simulated run and one over real sockets lose the same blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from garfield.core.errors import ConfigError, UnknownName
from garfield.core.types import Flags
from garfield.transport.contract import MODEL, Key, kind_named

TRIES = 3
"""How often blocks are asked for of which none came."""

FILLS = ("random", "zeros", "last", "mask")
"""What may stand for values that were lost; see `filling.py`."""


@dataclass(frozen=True)
class LossyLinks:
    """The lossy links of a run, the same at every node."""

    workers: frozenset[str]
    servers: frozenset[str]
    models: bool = False
    """Models are sent by datagrams too, not only gradients."""
    fill: str = "random"
    loss: float = 0.0
    """The share of blocks that are lost on purpose."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.fill not in FILLS:
            raise UnknownName("a way to fill what was lost", self.fill, FILLS)
        if not 0 <= self.loss < 1:
            raise ConfigError(f"loss is a share within 0..1, below 1, got {self.loss}.")

    def between(self, asker: str, sender: str, kind: str) -> bool:
        """Whether what `sender` sends to `asker` travels by datagrams."""
        if asker == sender or not kind_named(kind).lossy:
            return False
        if kind == MODEL.name:
            return self.models and asker in self.workers and sender in self.servers
        return asker in self.servers and sender in self.workers

    def dropped(self, link: tuple[str, str], key: Key, blocks: int, again: int = 0) -> Flags:
        """(TRIES, blocks) which are lost on purpose the first, second, ... time they are sent.

        `link` is who asks and who answers; `again` counts pulls of the same key before this one.
        """
        if not self.loss:
            return np.zeros((TRIES, blocks), np.bool_)
        return self.generator("lost", link, key, again).random((TRIES, blocks)) < self.loss

    def generator(
        self, use: str, link: tuple[str, str], key: Key, again: int = 0
    ) -> np.random.Generator:
        """A generator of its own for each use, link and key."""
        name = crc32(" ".join((use, *link, key.kind)).encode())
        return np.random.default_rng([self.seed, name, key.step, key.round, again])


class Repeats:
    """How often the same key went over each link before: of each link, the last key only."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], tuple[Key, int]] = {}

    def again(self, peer: str, key: Key) -> int:
        """Count a pull of that key; 0 the first time."""
        before, count = self._last.get((peer, key.kind), (key, -1))
        count = count + 1 if before == key else 0
        self._last[peer, key.kind] = key, count
        return count
