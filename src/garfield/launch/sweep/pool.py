"""One warm pool of processes that run the cells of a grid, as many at once as there are cores.

Each process runs one cell at a time on one thread: two cells side by side keep two cores busier
than one cell on two threads does. A process that dies, killed by hand or for want of memory,
fails the cell that it had and no other, and another takes its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from garfield.core.errors import NodeFailed
from garfield.core.events import Event
from garfield.launch.sweep.cell_process import run_cells
from garfield.runs.process import preload_modules
from garfield.runs.supervisor import Supervisor
from garfield.runs.user_files import loaded

_GUARD = 'In a script, call garfield.sweep under if __name__ == "__main__":.'
_PRELOAD = ("garfield.launch.sweep.cell_process", "garfield.launch.simulate")


@dataclass(frozen=True)
class Job:
    """One cell to run, as its process is told."""

    cell: int
    """Its place in the grid."""
    settings: dict[str, Any]
    directory: str
    about: dict[str, Any]
    """What its `cell.json` holds beside what was found."""
    checkpoints: bool = False
    threads: int = 1


class Pool:
    """Processes that run cells. Use as a context: leaving it ends them."""

    def __init__(self, count: int, frameworks: Sequence[str]) -> None:
        self._names = [f"cells-{i}" for i in range(count)]
        self._supervisor = Supervisor(preload=[*preload_modules(frameworks), *_PRELOAD])
        self._running: dict[str, Job] = {}
        self._ready: set[str] = set()
        self.stopping = False
        """Set to start no more cells; those that run go on to their ends."""

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.stop()

    @property
    def pids(self) -> dict[str, int]:
        """Pids of the processes, by name."""
        return {n: pid for n, pid in self._supervisor.pids.items() if self._is_up(n)}

    def run(self, jobs: Sequence[Job]) -> Iterator[Event]:
        """Run all jobs; what is told of them: cell-started, cell-step, cell-done, cell-failed.

        Each job ends in one of the last two, save where `stopping` was set before its start.
        NodeFailed if processes cannot be started here at all.
        """
        waiting = deque(jobs)
        for name in self._names[: len(waiting)]:
            yield self._give(name, waiting.popleft())
        while self._running:
            for name, event in self._supervisor.events():
                told = self._heard(name, event)
                if told is not None:
                    yield told
                if name not in self._running and waiting and not self.stopping:
                    yield self._give(name, waiting.popleft())

    def _give(self, name: str, job: Job) -> Event:
        if not self._is_up(name):
            self._ready.discard(name)
            self._supervisor.start(name, run_cells, [str(path) for path in loaded()])
        self._supervisor.send(name, vars(job))
        self._running[name] = job
        return {"event": "cell-started", "node": name, "cell": job.cell}

    def _is_up(self, name: str) -> bool:
        return self._supervisor.is_running(name)

    def _heard(self, name: str, event: Event) -> Event | None:
        """What is to be told of an event; a process that ends has failed the cell it had."""
        if event["event"] == "ready":
            self._ready.add(name)
        if event["event"] in ("cell-done", "cell-failed"):
            del self._running[name]
            return event
        if event["event"] == "ended" and name in self._running:
            job = self._running.pop(name)
            error = self._supervisor.failure(name) or event["error"]
            if name not in self._ready and (event["exit_code"] or 0) > 0:
                raise NodeFailed(f"{name} did not start: {error} {_GUARD}")
            about = {"node": name, "cell": job.cell, "trace": "", "room": True}
            return {"event": "cell-failed", **about, "error": _why(error, event["exit_code"])}
        return event if event["event"] == "cell-step" else None


def _why(error: str, code: int | None) -> str:
    """Why a process ended, with what it may mean."""
    if code == -9:
        return f"{error} Somebody killed it, or memory was short: start fewer --processes."
    return error
