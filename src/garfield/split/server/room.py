"""So many bytes, of memory or disk, for all answers of a server together."""

from __future__ import annotations


class Room:
    """What is held of them. Belongs to one event loop."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.held_bytes = 0

    def took(self, count: int) -> bool:
        """Take room for so many bytes; False if there is not as much."""
        if self.held_bytes + count > self._most:
            return False
        self.held_bytes += count
        return True

    def take_regardless(self, count: int) -> None:
        """Take it also where there is none: by whoever can do with no less."""
        self.held_bytes += count

    def give_back(self, count: int) -> None:
        self.held_bytes -= count
