"""What a run tells while it is drilled: read from its metrics as they grow, and from the system."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from garfield.core.events import Event

POLL_S = 0.05
GOES_ON = 3
"""Steps that a server must tell of before it counts as going on."""


class Tail:
    """The events of a run's metrics, read as they are written."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def new(self) -> list[Event]:
        """What was added since; a line that is not whole yet is left for the next time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                added = file.read()
        except FileNotFoundError:
            return []
        whole = added[: added.rfind(b"\n") + 1]
        self._read += len(whole)
        return [event for line in whole.splitlines() if (event := _event(line)) is not None]


def _event(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None  # it was cut when its writer was killed
    return event if isinstance(event, dict) and "event" in event else None


class Watch:
    """How far each node is, from the metrics of one directory or of several."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        """`paths` are metrics by whose they are."""
        self._tails = {whose: Tail(path) for whose, path in paths.items()}
        self.steps: dict[str, int] = {}
        """The step that each node told last."""
        self.told: dict[str, int] = defaultdict(int)
        """How often each node has told of a step."""
        self.best: dict[str, float] = {}
        """The best accuracy that each node has told."""
        self.accuracy: dict[str, float] = {}
        """The accuracy that each node told last."""
        self.accused: dict[str, set[str]] = defaultdict(set)
        """By whom: of whom it says that it has proof of a lie, with the reason."""
        self.done: dict[str, int] = {}
        self.resumed: dict[str, list[int]] = defaultdict(list)
        """The steps at which each of the metrics was gone on with."""

    def look(self) -> None:
        """Take what is new."""
        for whose, tail in self._tails.items():
            for event in tail.new():
                self.take(whose, event)

    def behind(
        self, before: Mapping[str, int], servers: Collection[str], others: Collection[str]
    ) -> list[str]:
        """Who has told too little since: a server of its steps, another of its gradients."""
        enough = dict.fromkeys(others, 1) | dict.fromkeys(servers, GOES_ON)
        return [name for name in enough if self.told[name] - before.get(name, 0) < enough[name]]

    def take(self, whose: str, event: Event) -> None:
        """Take one event."""
        node, kind = str(event.get("node", "")), event["event"]
        if kind in ("step", "worker"):
            self.steps[node] = int(event["step"])
            self.told[node] += 1
        if kind == "done":
            self.done[node] = int(event["step"])
        if kind == "resumed":
            self.resumed[whose].append(int(event["step"]))
        if event.get("accuracy") is not None:
            self.accuracy[node] = float(event["accuracy"])
            self.best[node] = max(self.best.get(node, 0.0), self.accuracy[node])
        for peer, reasons in event.get("faults", {}).items():
            self.accused[node] |= {f"{peer}: {reason}" for reason in reasons if _proof(reason)}


def _proof(reason: str) -> bool:
    from garfield.core.silence import Reason

    return Reason.known(reason) and Reason(reason).proof


def until(condition: Callable[[], Any], timeout_s: float) -> bool:
    """Wait for a condition; whether it came in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet buried does not."""
    found = _stat(pid)
    return found is not None and found[0] not in ("Z", "X")


def session(leader: int) -> dict[int, str]:
    """The processes of a session that run, with the names that they gave themselves."""
    found: dict[int, str] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        stat = _stat(int(entry))
        if stat is not None and stat[0] not in ("Z", "X") and int(stat[3]) == leader:
            with suppress(OSError):
                words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                found[int(entry)] = words[0].decode(errors="replace")
    return found


def descriptors(pid: int) -> int | None:
    """How many files a process has open; None if it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def _stat(pid: int) -> list[str] | None:
    """State, parent, group and session first."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
