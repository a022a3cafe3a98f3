"""A transport that tells when its node has waited for some peer for long, and for whom.

A node says nothing while it waits, and it may wait for as long as `give_up_s`. So the first
notice comes after `after_s`, and others each time that the wait has doubled. A worker that waits
in vain asks in between where its servers stand: that is still the same wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from garfield.core.events import Sink
from garfield.nodes.standing import STANDING
from garfield.transport.contract import (
    Heard,
    Key,
    PullArguments,
    Replies,
    Transport,
    Until,
    WrappedTransport,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass
class _Wait:
    """What a node waits for, maybe in several pulls."""

    key: Key | None
    began: float
    next_s: float
    """After how many seconds in all the next notice is due."""


class NoticedWaits(WrappedTransport):
    """Passes every pull on, and sends an event "waits" to the sink while one lasts."""

    def __init__(
        self,
        inner: Transport,
        sink: Sink,
        after_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(inner)
        self._sink, self._after_s, self._clock = sink, after_s, clock
        self._wait = _Wait(None, 0.0, after_s)

    def pull(self, peers: Sequence[str], key: Key, **how: Unpack[PullArguments]) -> Replies:
        how["until"] = self._noticing(how["until"], key)
        return super().pull(peers, key, **how)

    def _noticing(self, until: Until, key: Key) -> Until:
        if key != self._wait.key and key.kind != STANDING.name:
            self._wait = _Wait(key, self._clock(), self._after_s)
        wait = self._wait

        def ask(heard: Heard) -> float:
            left_s = until(heard)
            waited_s = self._clock() - wait.began
            if wait.key is not None and left_s > 0 and heard.open and waited_s >= wait.next_s:
                wait.next_s = 2 * waited_s
                self._tell(wait.key, sorted(heard.open), waited_s)
            return min(left_s, max(wait.next_s - waited_s, 0.001))

        return ask

    def _tell(self, key: Key, peers: Sequence[str], waited_s: float) -> None:
        what = f"newest {key.kind}" if key.is_newest else f"{key.kind} of step {key.step}"
        who = ", ".join(peers)
        self._sink({
            "event": "waits", "node": self.name, "peers": [*peers],
            "error": f"{self.name} has waited {waited_s:.0f} s for the {what} of {who}",
        })  # fmt: skip
