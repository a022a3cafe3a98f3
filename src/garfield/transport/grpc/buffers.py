"""Rows to receive into, used again round after round: one per kind and peer."""

from __future__ import annotations

import numpy as np

from garfield.transport.contract import Payload, numbers_of


class Buffers:
    """A row is free, being filled, or lent to the node until its next pull of that kind.

    A read-only row is somebody else's memory: it is passed on, and never taken in.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[str, str], Payload] = {}
        self._lent: dict[str, dict[str, Payload]] = {}

    def recall(self, kind: str) -> None:
        """A new pull begins: what the last one of this kind lent may be written over."""
        for peer, row in self._lent.pop(kind, {}).items():
            self.give(kind, peer, row)

    def take(self, kind: str, peer: str, length: int) -> Payload:
        """A row to fill."""
        row = self._free.pop((kind, peer), None)
        fits = row is not None and len(row) == length
        return row if row is not None and fits else np.empty(length, numbers_of(kind))

    def give(self, kind: str, peer: str, row: Payload) -> None:
        """Back: nobody reads it any more."""
        if row.flags.writeable:
            self._free[kind, peer] = row

    def lend(self, kind: str, peer: str, row: Payload) -> Payload:
        """The same memory, for the node to read."""
        if not row.flags.writeable:
            return row
        self._lent.setdefault(kind, {})[peer] = row
        view = row.view()
        view.flags.writeable = False
        return view
