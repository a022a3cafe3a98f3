"""The shim of a worker: a small process that outlives the daemon and keeps the exit code.

It takes its place in the slot, starts the worker in a session of its own, and ends as the worker
does: with its exit code, or 128 + n where signal n ended it. SIGTERM is passed on. SIGUSR1 kills
the worker with all that it has started; and if the shim itself is killed, the kernel kills it.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from garfield.elastic.local.slots import Pacer
from garfield.runs.control_groups import write
from garfield.runs.process import die_with_parent
from garfield.runs.supervised import Channel

NOT_STARTED = 127
"""The exit code where the program cannot be started, as of a shell."""


@dataclass(frozen=True)
class WorkerTask:
    """What a worker runs, and what it may use."""

    command: Sequence[str]
    directory: str
    environment: Mapping[str, str]
    """What is added to the daemon's own."""
    cpus: float
    group: str | None = None
    """The control group of its slot; without it the worker is paced."""
    memory_bytes: int | None = None


def run(_channel: Channel, task: WorkerTask) -> None:
    """Be the shim until the worker has ended."""
    is_held = _enter(task.group)
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(signal.SIGTERM))
    signal.signal(signal.SIGUSR1, lambda *_: told.append(signal.SIGKILL))
    try:
        worker = subprocess.Popen(
            task.command, cwd=task.directory, env={**os.environ, **task.environment},
            stdin=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=_Prepared(task.memory_bytes),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as problem:
        os.write(2, f"{task.command[0]} cannot be started: {problem}\n".encode())
        raise SystemExit(NOT_STARTED) from None

    def pass_on(number: int) -> None:
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(worker.pid, number)
            else:
                worker.send_signal(number)

    signal.signal(signal.SIGTERM, lambda *_: pass_on(signal.SIGTERM))
    signal.signal(signal.SIGUSR1, lambda *_: pass_on(signal.SIGKILL))
    for number in told:
        pass_on(number)
    pacer = None if is_held else Pacer(worker.pid, task.cpus)
    code = worker.wait()
    if pacer is not None:
        pacer.close()
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)  # what it has started and left behind
    raise SystemExit(128 - code if code < 0 else code)


def _enter(group: str | None) -> bool:
    """Be in a control group from now on; False if that is impossible."""
    if group is None:
        return False
    try:
        write(Path(group) / "cgroup.procs", os.getpid())
    except OSError:
        return False
    return True


class _Prepared:
    """What a worker's process does between fork and exec."""

    def __init__(self, memory_bytes: int | None) -> None:
        self._memory_bytes = memory_bytes

    def __call__(self) -> None:
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        if self._memory_bytes is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (self._memory_bytes, self._memory_bytes))
