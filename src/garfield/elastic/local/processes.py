"""The worker processes of a cluster: started, adopted, ended. Each is a shim (`worker_process`)."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from garfield.elastic.local.worker_process import WorkerTask, run
from garfield.runs import outliving
from garfield.runs.outliving import OutlivingProcess

_KILL_S = 5.0
"""How long a shim may take to kill its worker before it is killed itself."""
_KILLED = 128 + signal.SIGKILL


@dataclass
class _Process:
    handle: OutlivingProcess
    sent: dict[int, float] = field(default_factory=dict)
    """Signals that it was sent, and when (monotonic)."""


class WorkerProcesses:
    """All that run, by name. One daemon at a time has them: see `runs/outliving.lock`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._running: dict[str, _Process] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def __len__(self) -> int:
        return len(self._running)

    def adopt(self) -> dict[str, int | None]:
        """Take over what an earlier daemon has started; exit codes of those that have ended."""
        ended = {}
        for name, found in outliving.adopt(self._directory):
            if isinstance(found, OutlivingProcess):
                self._running[name] = _Process(found)
            else:
                ended[name] = found.exit_code
        return ended

    def start(self, name: str, task: WorkerTask) -> None:
        """Start a worker."""
        self._running[name] = _Process(outliving.start(run, name, (task,), self._directory))

    def log_of(self, name: str) -> Path:
        """What it printed."""
        return self._directory / f"{name}.log"

    def wait(self, timeout_s: float) -> None:
        """Wait until one ends, but no longer than that."""
        sentinels = [each.handle.sentinel for each in self._running.values()]
        select.select(sentinels, [], [], timeout_s)

    def ended(self) -> dict[str, int | None]:
        """Exit codes of those that have ended since this was last asked."""
        found = {}
        for name, each in list(self._running.items()):
            if each.handle.join(0):
                code = each.handle.exit_code
                found[name] = code if code is None or code >= 0 else _KILLED
                each.handle.close()
                del self._running[name]
        return found

    def end(self, name: str, grace_s: float, *, ask_after_s: float = 0.0) -> None:
        """Have it end: asked to after a while, killed if it does not. To be called again and again.

        The first call begins; later ones go on.
        """
        each, now = self._running[name], time.monotonic()
        began = each.sent.setdefault(0, now)
        due = {
            signal.SIGTERM: began + ask_after_s,
            signal.SIGUSR1: began + ask_after_s + grace_s,
            signal.SIGKILL: began + ask_after_s + grace_s + _KILL_S,
        }
        for number, at in due.items():
            if now >= at and number not in each.sent:
                each.sent[number] = now
                with suppress(OSError):
                    each.handle.signal(number)

    def end_all(self, grace_s: float) -> dict[str, int | None]:
        """End all of them, and wait for it; their exit codes."""
        codes: dict[str, int | None] = {}
        while self._running:
            for name in list(self._running):
                self.end(name, grace_s)
            self.wait(0.1)
            codes |= self.ended()
        return codes


def ending_of(member: str, code: int | None, last_words: Sequence[str] = ()) -> str:
    """How a worker ended, for people."""
    if code is None:
        how = "ended, nobody knows how"
    elif code > 128:
        how = f"was killed by signal {code - 128}"
    else:
        how = f"exit code {code}"
    return f"{member}: {how}" + (f" ({last_words[-1]})" if last_words else "")
