"""What the processes of a drill print, through pipes: a disk may be full, these are not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_AT_ONCE = 1 << 16


class Logs:
    """The pipes of some processes by name, and all that has come through them. Use as a context."""

    def __init__(self, directory: Path, names: Iterable[str]) -> None:
        self._directory = directory
        self._pipes: dict[str, int] = {}
        self._text: dict[str, bytearray] = {}
        self._seen: dict[str, int] = {}
        for name in names:
            os.mkfifo(self.path(name))
            # for writing too, or its end would come with that of the first writer
            self._pipes[name] = os.open(self.path(name), os.O_RDWR | os.O_NONBLOCK)
            self._text[name], self._seen[name] = bytearray(), 0

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        self.look()
        for name, pipe in self._pipes.items():
            os.close(pipe)
            self.path(name).unlink(missing_ok=True)
            (self._directory / f"{name}.log").write_bytes(self._text[name])
        self._pipes.clear()

    def path(self, name: str) -> Path:
        """Where that process is to write to."""
        return self._directory / f"{name}.pipe"

    def look(self) -> None:
        """Take what has come."""
        for name, pipe in self._pipes.items():
            while True:
                try:
                    self._text[name] += os.read(pipe, _AT_ONCE)
                except BlockingIOError:
                    break

    def new(self) -> Mapping[str, str]:
        """What each has printed since this was asked last."""
        self.look()
        added = {}
        for name, text in self._text.items():
            added[name] = text[self._seen[name] :].decode(errors="replace")
            self._seen[name] = len(text)
        return added

    def last_line(self, name: str) -> str:
        """The last that it has printed."""
        self.look()
        lines = self._text[name].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"
