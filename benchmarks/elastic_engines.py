"""One small job of real processes, under each way to change its workers.

    in-process           survivors stay, newcomers join between two steps
    torchrun, tuned      all processes end and start anew, with short time-outs
    torchrun, defaults   the same with torchrun's own time-outs

A session starts workers, is asked for more or fewer, and reads what each of them wrote down.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from garfield.core.errors import RunError
from garfield.elastic.job.environment import environment_of
from garfield.elastic.job.on_sqlite import SqliteCoordination
from garfield.elastic.job.torchrun_agent import TUNED, agent_command, agent_environment

Line = dict[str, Any]
_WAIT_S, _LOOK_S, _END_S = 180.0, 0.02, 40.0


class Session(ABC):
    """Workers of one job. Use as a context: whoever is left at the end is ended."""

    def __init__(self, directory: Path, size: str) -> None:
        self._directory, self._size = directory, size
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.terminate()
        deadline = time.monotonic() + _END_S
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._end_orphans()

    @abstractmethod
    def add(self, *members: str) -> None:
        """Ask for these workers too."""

    @abstractmethod
    def remove(self, member: str) -> None:
        """Ask for one worker less."""

    def lines(self, member: str) -> list[Line]:
        """What a worker wrote down, a line a step."""
        path = self._record(member)
        if not path.exists():
            return []
        whole = [line for line in path.read_text().splitlines(keepends=True) if line[-1] == "\n"]
        return [json.loads(line) for line in whole]

    def wait_for_steps(self, members: list[str], workers: int, count: int) -> None:
        """Wait until each of them has taken so many steps in a row with so many workers."""

        def is_so() -> bool:
            last = [self.lines(member)[-count:] for member in members]
            return all(
                len(each) == count and all(line["workers"] == workers for line in each)
                for each in last
            )

        self._wait(is_so, f"{count} steps of {', '.join(members)} with {workers} workers")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not condition():
            if time.monotonic() > deadline:
                raise RunError(f"No {what} in {_WAIT_S:g} s: see the logs in {self._directory}.")
            time.sleep(_LOOK_S)

    def _start(self, member: str, command: list[str], environment: Mapping[str, str]) -> None:
        with (self._directory / f"{member}.log").open("ab") as log:
            self._processes[member] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", **environment},
            )

    def _script(self, member: str, **options: Any) -> list[str]:
        words = [str(self._record(member)), self._size, json.dumps(options)]
        return ["-m", "benchmarks.elastic_worker", *words]

    def _record(self, member: str) -> Path:
        return self._directory / f"{member}.jsonl"

    def _end_orphans(self) -> None:
        """torchrun's workers outlive an agent that was killed."""
        for member in self._processes:
            for pid in {line["pid"] for line in self.lines(member)}:
                if b"benchmarks.elastic_worker" in _command_of(pid):
                    os.kill(pid, signal.SIGKILL)


class InProcess(Session):
    """Generations proposed in the job's database."""

    def __init__(self, directory: Path, size: str) -> None:
        super().__init__(directory, size)
        self._file = directory / "job.sqlite"
        self._agreed = SqliteCoordination(self._file)

    def add(self, *members: str) -> None:
        self._propose([*self._agreed.read().generation.members, *members])
        for member in members:
            command = [sys.executable, *self._script(member)]
            self._start(member, command, environment_of(self._file, member))

    def remove(self, member: str) -> None:
        now = self._agreed.read().generation.members
        self._propose([each for each in now if each != member])

    def _propose(self, members: list[str]) -> None:
        while not self._agreed.propose(members, after=self._agreed.read().generation.number):
            pass


class Torchrun(Session):
    """An agent of torchrun for each worker."""

    rendezvous: Mapping[str, int] = TUNED

    def __init__(self, directory: Path, size: str) -> None:
        from garfield.elastic.job.group import OfferedStore

        super().__init__(directory, size)
        self._store = OfferedStore("127.0.0.1")

    def add(self, *members: str) -> None:
        for member in members:
            script = self._script(member, checkpoint_dir=str(self._directory / "checkpoints"))
            command = agent_command(
                script, self._store.address, "benchmark", workers=(1, 8),
                rendezvous=self.rendezvous,
            )  # fmt: skip
            self._start(member, command, agent_environment())

    def remove(self, member: str) -> None:
        self._processes[member].terminate()


class TorchrunDefaults(Torchrun):
    """With the time-outs that torchrun has if nobody says anything."""

    rendezvous: Mapping[str, int] = {}


ENGINES: dict[str, Callable[[Path, str], Session]] = {
    "in-process": InProcess,
    "torchrun, tuned": Torchrun,
    "torchrun, defaults": TorchrunDefaults,
}


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
