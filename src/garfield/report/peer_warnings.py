"""Warnings of peers that lie or are silent, for someone who reads along: few, and with counts.

A peer is named with its first fault of a kind, and again each time that there are ten times as
many. Nodes tell the sums of their faults in every event.
"""

from __future__ import annotations

from collections.abc import Iterator

from garfield.core.events import Event
from garfield.core.silence import Reason
from garfield.report.run_history import Roster, read_history
from garfield.report.summary import misbehaviour

OFTEN = 10


class PeerWarnings:
    """What one node has to say about its peers."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._told: dict[tuple[str, Reason], int] = {}
        self._last: list[Event] = []
        """Its last event with sums, and the one that says that its model has diverged."""

    def take(self, event: Event) -> Iterator[str]:
        """Note an event; what is new in it, a sentence each."""
        if "bytes_sent" in event or event["event"] == "diverged":
            self._last = [
                old for old in self._last if ("bytes_sent" in old) != ("bytes_sent" in event)
            ]
            self._last.append(event)
        for peer, faults in (event.get("faults") or {}).items():
            for reason, fault in faults.items():
                why = Reason(reason)
                before, times = self._told.get((peer, why), 0), fault["times"]
                if not why.blameless and times >= max(1, before * OFTEN):
                    self._told[peer, why] = times
                    verb = "lied to" if why.proof else "was not heard by"
                    yield f"warning: {peer} {verb} {self._node}, {_times(times)}: {fault['detail']}"

    def ended(self) -> Iterator[str]:
        """Name everybody who lied or was silent, at the end."""
        history = read_history(self._last, Roster([self._node], []))
        for peer, about in misbehaviour(history).items():
            how = "lied" if about["kind"] == "lied" else "was silent"
            reasons = about["reasons"].values()
            why = ", ".join(f"{fault['times']}× {fault['detail']}" for fault in reasons)
            yield f"{peer} {how}: {why}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
