"""What a server offers its devices, and which of them have heard that all is over."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from garfield.fedgan.nodes.messages import SERVERS_SAY, later_than
from garfield.fedgan.nodes.secure_round import SERVERS_SAY as SECURE_SERVERS_SAY
from garfield.nodes.outbox import Outbox
from garfield.transport.contract import Answer, Key, NotYet, Refused


class ServerOutbox(Outbox):
    """An outbox that notes who has heard that it is over: who asks for what comes after that.

    Not who was answered: an answer may be lost with the server, which leaves as soon as all have
    heard, and the device would wait for another one until it gives up.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        super().__init__()
        said = SERVERS_SAY | SECURE_SERVERS_SAY
        self.audience = lambda asker, kind: asker in devices and kind in said
        self.last_turn: int | None = None
        self.told: set[str] = set()
        self._all_told = threading.Event()
        self.waits_for = frozenset(devices)
        """Until these have heard it, at the end."""

    def answer(self, asker: str, key: Key) -> Answer:
        answer = super().answer(asker, key)
        over = self.last_turn is not None and key == later_than(self.last_turn)
        if not over or not isinstance(answer, NotYet):
            return answer
        self.told.add(asker)
        if self.told >= self.waits_for:
            self._all_told.set()
        return Refused()  # nothing will come

    def wait_until_told(self, longest_s: float) -> None:
        """Until all who are waited for have heard it, if there is anybody."""
        if self.waits_for:
            self._all_told.wait(longest_s)
