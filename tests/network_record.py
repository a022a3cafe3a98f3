"""Who pulled what from whom in a simulated run: for tests of rounds, messages and bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from garfield.transport.simulated import SimulatedTransport, Simulation


@dataclass
class Pull:
    asker: str
    kind: str
    step: int
    asked: int
    heard: tuple[str, ...]


@dataclass
class Record:
    pulls: list[Pull] = field(default_factory=list)
    transports: list[SimulatedTransport] = field(default_factory=list)
    simulation: Simulation | None = None

    def rounds(self, step):
        """The kinds of vectors that travel in a step: each takes one round of communication.

        A proposal is the model of the next step, made in this one.
        """
        return {p.kind for p in self.pulls if p.step - (p.kind == "proposal") == step}

    def messages(self):
        """Vectors that arrived, by kind."""
        counts = Counter()
        for pull in self.pulls:
            counts[pull.kind] += len(pull.heard)
        return counts

    @property
    def bytes_received(self):
        return sum(transport.bytes_received for transport in self.transports)


def recorded(monkeypatch):
    """Everything that simulated nodes pull from now on, in this test."""
    record, pull, init = Record(), SimulatedTransport.pull, SimulatedTransport.serve

    def pulled(self, peers, key, **how):
        replies = pull(self, peers, key, **how)
        record.pulls.append(Pull(self.name, key.kind, key.step, len(peers), replies.names))
        return replies

    def served(self, source):
        record.transports.append(self)
        record.simulation = self.simulation
        init(self, source)

    monkeypatch.setattr(SimulatedTransport, "pull", pulled)
    monkeypatch.setattr(SimulatedTransport, "serve", served)
    return record
