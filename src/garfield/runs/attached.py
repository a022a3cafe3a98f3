"""Processes that end with their supervisor.

They are forked from a forkserver that has the slow modules loaded, so ten of them start in the
time of one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from garfield.core.errors import NodeFailed
from garfield.runs.scratch import scratch_directory
from garfield.runs.supervised import Target, run_attached

_FIRST = "garfield.runs.forkserver_lifeline"  # so that the forkserver ends with the supervisor
_LAST = "garfield.runs.supervised"
LONGEST_SCRATCH = 75  # a unix socket's path may have 107 bytes, and multiprocessing adds 32
_AFTER_ITS_OWN = -200  # multiprocessing removes what it has made with priority -100

_context = multiprocessing.get_context("forkserver")
_scratch: list[Path] = []
"""The directory of this process for temporary files, once it has one."""


@dataclass
class AttachedProcess:
    """A process that ends with its supervisor."""

    process: ForkServerProcess
    connection: Connection

    @property
    def pid(self) -> int:
        return self.process.pid or 0

    @property
    def sentinel(self) -> int:
        return self.process.sentinel

    @property
    def exit_code(self) -> int | None:
        return self.process.exitcode

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            if self.process.is_alive():
                os.kill(self.pid, number)

    def join(self) -> None:
        self.process.join()

    def close(self) -> None:
        self.connection.close()


def preload(modules: Sequence[str]) -> None:
    """Have these imported once for all processes, unless some were started before."""
    _context.set_forkserver_preload([_FIRST, *modules, _LAST])


def start(target: Target, name: str, arguments: tuple[Any, ...]) -> AttachedProcess:
    """Start a process, forked from the forkserver, which is started with the first of them."""
    resource_tracker.ensure_running()  # before: it would let interrupts through again
    with _interrupts_withheld():  # inherited: Ctrl-C is for the supervisor to act on
        _keep_temporary_files_together()
        forkserver.ensure_running()
    ours, theirs = _context.Pipe()
    process = _context.Process(
        target=run_attached, args=(target, name, theirs, arguments), name=name, daemon=True
    )
    try:
        process.start()
    except (EOFError, ConnectionError) as problem:
        raise NodeFailed(
            f"{name} did not start: the process that starts all others has ended "
            f"({type(problem).__name__}). Start the run again."
        ) from None
    finally:
        theirs.close()
    return AttachedProcess(process, ours)


def _keep_temporary_files_together() -> None:
    """Let multiprocessing make its own in a directory that is swept if this process is killed."""
    if _scratch:
        return
    until_exit = ExitStack()
    directory = until_exit.enter_context(scratch_directory())
    util.Finalize(None, until_exit.close, exitpriority=_AFTER_ITS_OWN)
    _scratch.append(directory)
    if len(str(directory)) > LONGEST_SCRATCH:
        return
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        util.get_temp_dir()  # makes it, once for this process
    finally:
        tempfile.tempdir = before


@contextmanager
def _interrupts_withheld() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
