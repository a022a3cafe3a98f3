"""Which server's turn it is: all that answer, one after the other.

One that fails is passed over, for longer each time. Then one of those who ask puts a short question
to it, while the others still pass it over, and it is back once it has answered: a server that
hangs would keep every request that it is sent waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

PASSED_OVER_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""For how long a server is not asked after its first failure, its second in a row, and so on."""


@dataclass(frozen=True)
class _PassedOver:
    """A server that has failed."""

    failures: int = 0
    """In a row."""
    last: float = 0.0
    """When it failed last."""
    until: float = 0.0
    """From when on it may be asked whether it is back."""
    back: bool = False
    """It has said so, and is asked like any other."""

    def again(self, now: float) -> _PassedOver:
        """After one more; requests that were under way together fail together, and count once."""
        if now < self.until:
            return replace(self, last=now)
        pause_s = PASSED_OVER_S[min(self.failures, len(PASSED_OVER_S) - 1)]
        return _PassedOver(self.failures + 1, now, now + pause_s)


class Rotation:
    """The turns of some servers. Used from several threads."""

    def __init__(
        self,
        urls: Sequence[str],
        is_there: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_there` asks a server whether it answers, and takes no longer than a few seconds."""
        self._urls, self._is_there, self._clock = urls, is_there, clock
        self._lock = threading.Lock()
        self._turn = 0
        self._passed_over: dict[str, _PassedOver] = {}

    def next(self) -> str:
        """The server whose turn it is; of those that are passed over, who failed last is last."""
        if (url := self._to_be_probed()) is not None:
            self._probe(url)
        with self._lock:
            self._turn += 1
            count = len(self._urls)
            turns = [self._urls[(self._turn + place) % count] for place in range(count)]
            return min(turns, key=self._failed_at)

    def failed(self, url: str) -> None:
        """It did not answer, or not as it should."""
        with self._lock:
            before = self._passed_over.get(url, _PassedOver())
            self._passed_over[url] = before.again(self._clock())

    def answered(self, url: str) -> None:
        """It did: its failures are forgotten."""
        with self._lock:
            self._passed_over.pop(url, None)

    def _failed_at(self, url: str) -> float:
        failed = self._passed_over.get(url)
        return -inf if failed is None or failed.back else failed.last

    def _to_be_probed(self) -> str | None:
        """A server whose time is up, if another can be asked meanwhile. It is the caller's now."""
        now = self._clock()
        with self._lock:
            if all(self._failed_at(url) > -inf for url in self._urls):
                return None
            for url, failed in self._passed_over.items():
                if not failed.back and failed.until <= now:
                    self._passed_over[url] = replace(failed, until=inf)
                    return url
        return None

    def _probe(self, url: str) -> None:
        is_there = False
        try:
            is_there = self._is_there(url)
        finally:
            now = self._clock()
            with self._lock:
                if (failed := self._passed_over.get(url)) is not None:  # else it has answered
                    due = replace(failed, until=now)
                    self._passed_over[url] = replace(due, back=True) if is_there else due.again(now)
