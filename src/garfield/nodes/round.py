"""Round: one gather as it goes, between the transport that pulls and the decisions of `quorum.py`.

It keeps the times: who came when, since when rows are enough, since when peers say to be past the
step. At its end it books what everybody has cost to the node's patience.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from garfield.core.silence import NOT_NEEDED, Reason, Silence, no_answer
from garfield.nodes.patience import Patience
from garfield.nodes.quorum import Progress, Quorum, left_s
from garfield.transport.contract import Heard, Replies


class Round:
    """One round as it goes: who came when, and for how long to wait for the others."""

    def __init__(self, quorum: Quorum, patience: Patience, clock: Callable[[], float]) -> None:
        self._quorum, self._patience, self._clock = quorum, patience, clock
        self.started = clock()
        self._came: dict[str, float] = {}
        """When each peer has answered, or failed."""
        self.open: frozenset[str] = frozenset()
        """Who may still answer."""
        self._since: dict[str, float] = {}
        self.looks_back = False
        """Whether it has ended for the node to ask if its peers have gone back."""

    def __call__(self, heard: Heard) -> float:
        """How many seconds more to wait: what a transport asks while it pulls."""
        now, quorum = self._clock(), self._quorum
        for peer in (*heard.rows, *heard.failed):
            self._came.setdefault(peer, now)
        self.open = frozenset(heard.open)
        count, proven = len(heard.rows), quorum.proven(heard.failed)
        progress = Progress(
            count, self.open, proven,
            safe_since_s=self._since_s("safe", count >= quorum.safe_without(proven), now),
            bare_since_s=self._since_s("bare", count >= quorum.bare_without(proven), now),
            gone_since_s=self._since_s(
                "gone", quorum.left_behind(count, len(heard.gone), proven), now
            ),
            surely_gone=len(heard.gone) > quorum.f,
            since_s=now - self.started,
        )  # fmt: skip
        wait_s = left_s(quorum, progress, self._patience)
        self.looks_back = wait_s <= 0 and progress.looks_back(quorum)
        return wait_s

    def _since_s(self, what: str, is_so: bool, now: float) -> float | None:
        return now - self._since.setdefault(what, now) if is_so else None

    def settle(self, replies: Replies) -> bool:
        """Book what everybody has cost; whether the round may go on with what came."""
        now, patience = self._clock(), self._patience
        patience.came_late(replies.late)
        in_full = self._waited_in_full(now)
        for peer in replies.names:
            patience.answered(peer, self._alone_s(self._came.get(peer, now)))
        for peer in replies.silent:
            if peer in self.open:
                patience.missed(peer, self._alone_s(now), in_full=in_full)
            else:  # what it sent does not count; how long it took does
                patience.missed(peer, self._alone_s(self._came.get(peer, now)), in_full=False)
        quorum = self._quorum
        count, proven = len(replies.names), quorum.proven(replies.silent)
        if count >= quorum.safe_without(proven):
            return True
        missing = self.open.intersection(replies.silent)
        if not quorum.leads:
            missing = missing.union(replies.gone)
        return count >= quorum.bare_without(proven) and all(map(patience.is_charged, missing))

    def reasons(self, silent: Mapping[str, Silence], met: bool) -> Mapping[str, Silence]:
        """Why peers were not heard: they were not needed, unless they were waited for in full."""
        now = self._clock()
        if self._waited_in_full(now) or not met:
            late, before = no_answer(now - self.started), Reason.NOT_NEEDED
            return {peer: late if why.reason is before else why for peer, why in silent.items()}
        if "bare" not in self._since:
            return silent
        return {peer: NOT_NEEDED if why.reason.may_pass else why for peer, why in silent.items()}

    def _alone_s(self, until: float) -> float:
        """How long, until then, others would have been enough."""
        return max(0.0, until - self._since["safe"]) if "safe" in self._since else 0.0

    def _waited_in_full(self, now: float) -> bool:
        """Clocks round, so not to the last digit."""
        since = self._since.get("bare")
        return since is not None and now - since >= 0.99 * self._patience.timeout_s
