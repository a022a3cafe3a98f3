"""Rows that a round has received stay received, though it is broken off and begun again.

A worker that hears too few servers looks now and then whether they have gone back, which ends its
pull. What had come by then, of no more servers than may lie, is copied: the memory of rows that are
lent is used again by the next pull. Otherwise, over a slow network, rows that come one by one
would be asked for again for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from garfield.core.silence import Silence
from garfield.transport.contract import Heard, Key, Payload, Replies, Until


@dataclass(frozen=True)
class HeldRows:
    """What has been received under one key in pulls that were broken off."""

    key: Key | None = None
    rows: dict[str, Payload] = field(default_factory=dict)
    """By the names of their senders."""

    def missing(self, peers: Sequence[str]) -> list[str]:
        """Who is still to be asked."""
        return [peer for peer in peers if peer not in self.rows]

    def counted_in(self, until: Until) -> Until:
        """The same decision, of what is held and what a pull has heard together."""
        return (lambda heard: until(_Together(self.rows, heard))) if self.rows else until

    def and_more(self, replies: Replies) -> Replies:
        """What is held and what a pull has brought together."""
        if not self.rows:
            return replies
        found = self.rows | dict(zip(replies.names, replies.rows, strict=True))
        names = tuple(sorted(found))
        return replace(replies, names=names, rows=tuple(found[name] for name in names))

    def keep(self, replies: Replies) -> None:
        """Hold what came whole."""
        for name, row in zip(replies.names, replies.rows, strict=True):
            if name not in self.rows and name not in replies.holes:
                self.rows[name] = row.copy()


@dataclass(frozen=True)
class _Together:
    held: Mapping[str, Payload]
    now: Heard

    @property
    def rows(self) -> Mapping[str, Payload]:
        return {**self.held, **self.now.rows}

    @property
    def steps(self) -> Mapping[str, int]:
        return self.now.steps

    @property
    def gone(self) -> Mapping[str, int]:
        return self.now.gone

    @property
    def failed(self) -> Mapping[str, Silence]:
        return self.now.failed

    @property
    def open(self) -> Collection[str]:
        return self.now.open
