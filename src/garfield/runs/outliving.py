"""Processes that outlive their supervisor, and are adopted by the next one.

Each has its files in a directory of the run that only this user can enter:

    worker-0.json     pid and start time, and how it ended once it has
    worker-0.socket   where a supervisor connects to adopt it
    worker-0.log      what it prints

A process is known by its pid and the time it started, as the system may give the same pid
to another one later. Signals go through a file descriptor of the process, which stays its
own. Events that no supervisor was there to hear are kept for the next one, except those
that were on their way when a supervisor was killed. Linux only.
"""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from garfield.core.errors import ConfigError, NodeFailed
from garfield.core.events import Event
from garfield.core.files import write_json
from garfield.runs.supervised import Channel, Target, prepare, run

ADOPT_S = 30.0  # for a process that was still starting when its supervisor went


@dataclass(frozen=True)
class Record:
    """What stands in a process's .json."""

    pid: int
    started: str
    """When, in ticks of a boot of the machine: together with the pid, no other's."""
    ended: bool = False
    exit_code: int | None = None
    """None also if nobody knows: it was killed while no supervisor was there."""
    error: str | None = None
    """What it failed of, in its own words."""
    unsent: Sequence[Event] = ()
    """What it would have told a supervisor, had there been one."""


class OutlivingProcess:
    """A process that runs in a session of its own."""

    def __init__(
        self,
        pid: int,
        connection: Connection,
        files: _Files,
        handle: int,
        child: subprocess.Popen[bytes] | None = None,
    ) -> None:
        """`child` is given where this process has started it, and so can learn its exit code."""
        self.pid, self.connection, self.sentinel = pid, connection, handle
        self._files, self._child = files, child

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and where nobody knows."""
        if self._child is not None:
            return self._child.poll()
        found = self._files.read()
        return None if found is None else found.exit_code

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.sentinel, number)

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; whether it has come."""
        return bool(select.select([self.sentinel], [], [], timeout_s)[0])

    def close(self) -> None:
        """Let go of it; if it has ended, nothing is left of it but its log."""
        if self.join(0):
            _ = self.exit_code  # so that the system can forget it, too
            self._files.remove()
        self.connection.close()
        os.close(self.sentinel)


def lock(directory: Path) -> Any:
    """Keep a second supervisor away from the same processes."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)  # whoever can enter it can speak to them
    file = (directory / "supervisor.lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ConfigError(
            f"Another supervisor has the processes of {directory}. End it first."
        ) from None
    return file


def start(
    target: Target, name: str, arguments: tuple[Any, ...], directory: Path
) -> OutlivingProcess:
    """Start a process in a session of its own."""
    if target.__module__ == "__main__":
        raise ConfigError(
            f"{target.__qualname__} stands in the main script, where a process that outlives it "
            "cannot find it. Move it to a module."
        )
    if Path(name).name != name:
        raise ConfigError(f"{name!r} cannot name a process, as its files bear that name.")
    files = _Files(directory, name)
    if (running := files.handle()) is not None:
        os.close(running)
        raise ConfigError(f"{name} of an earlier supervisor still runs. Adopt it, or end it first.")
    files.remove()
    ours, theirs = Pipe()
    task = pickle.dumps((target, name, arguments, directory, theirs.fileno()))
    with files.path("log").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", "from garfield.runs.outliving import main; main()"],
            stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            pass_fds=[theirs.fileno()],
        )  # fmt: skip
    # before it is told what to do: a process without a record ends, and is never lost
    files.write(Record(child.pid, start_time(child.pid)))
    assert child.stdin is not None
    with suppress(BrokenPipeError), child.stdin as stdin:  # if it has ended, its exit code tells
        stdin.write(pickle.dumps((sys.path, task)))
    theirs.close()
    return OutlivingProcess(child.pid, ours, files, os.pidfd_open(child.pid), child)


def adopt(directory: Path) -> Iterator[tuple[str, OutlivingProcess | Record]]:
    """Connect to every process that has a record there; of one that has ended, give the record."""
    for path in sorted(directory.glob("*.json")):
        files = _Files(directory, path.stem)
        handle = files.handle()
        connection = None if handle is None else _connect(files, handle)
        record = files.read()
        if record is None:
            continue  # somebody has removed it meanwhile
        if connection is None or handle is None:
            files.remove()
            yield path.stem, record
        else:
            yield path.stem, OutlivingProcess(record.pid, connection, files, handle)


def main() -> None:
    """Be such a process; what to run comes by standard input."""
    given = sys.stdin.buffer.read()
    if not given:
        raise SystemExit(1)  # the supervisor ended before it said what to do
    sys.path[:], task = pickle.loads(given)
    target, name, arguments, directory, descriptor = pickle.loads(task)
    prepare(name)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal of a supervisor may go
    files = _Files(directory, name)
    code, failure = 1, None
    with files.socket() as address, Listener(address, "AF_UNIX") as listener:
        channel = Channel(name, Connection(descriptor), listener.accept)
        try:
            failure = run(target, channel, arguments)
            code = 0 if failure is None else 1
        except SystemExit as wanted:
            code = wanted.code if isinstance(wanted.code, int) else int(wanted.code is not None)
        finally:
            pid = os.getpid()
            files.write(Record(pid, start_time(pid), True, code, failure, channel.unsent()))
    raise SystemExit(code)


class _Files:
    """The files of one process."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name

    def path(self, ending: str) -> Path:
        return self._directory / f"{self._name}.{ending}"

    def read(self) -> Record | None:
        try:
            return Record(**json.loads(self.path("json").read_text()))
        except FileNotFoundError:
            return None

    def write(self, record: Record) -> None:
        write_json(self.path("json"), record)

    def remove(self) -> None:
        for ending in ("json", "socket"):
            self.path(ending).unlink(missing_ok=True)

    @contextmanager
    def socket(self) -> Iterator[str]:
        """The socket's path by way of the open directory: the system allows 107 bytes."""
        opened = os.open(self._directory, os.O_PATH)
        try:
            yield f"/proc/self/fd/{opened}/{self.path('socket').name}"
        finally:
            os.close(opened)

    def handle(self) -> int | None:
        """A file descriptor of the process, if it runs."""
        record = self.read()
        if record is None:
            return None
        try:
            handle = os.pidfd_open(record.pid)
        except ProcessLookupError:
            return None
        with suppress(FileNotFoundError):
            running = not select.select([handle], [], [], 0)[0]
            if running and start_time(record.pid) == record.started:
                return handle
        os.close(handle)
        return None


def _connect(files: _Files, handle: int) -> Connection | None:
    """None if the process has ended."""
    deadline = time.monotonic() + ADOPT_S
    with files.socket() as address:
        while True:
            try:
                return Client(address, "AF_UNIX")
            except OSError as problem:  # it has not come to listen yet
                if select.select([handle], [], [], 0.05)[0]:
                    os.close(handle)
                    return None
                if time.monotonic() > deadline:
                    raise NodeFailed(
                        f"{files.path('socket')} cannot be connected to: {problem}. End the "
                        f"process whose pid stands in {files.path('json')}."
                    ) from None


def start_time(pid: int) -> str:
    """When a process started, in ticks of a boot: with its pid, no other's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {fields[19]}"
