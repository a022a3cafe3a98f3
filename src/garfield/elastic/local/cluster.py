"""A local cluster, as commands find it: its files, and the daemon that runs it.

config.toml       the settings of its last start
metrics.jsonl     every decision with its snapshot (`garfield elastic replay`), and what happened
cluster.sqlite    its jobs, their records, and who has which slot
jobs/             what the workers of each job have agreed on
checkpoints/      what jobs go on from
processes/        worker processes and their logs
daemon.log        what the daemon told
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from garfield.core.config import flattened, read_toml, settings_of
from garfield.core.errors import ConfigError, NodeFailed, RunError
from garfield.elastic.local.database import ClusterDatabase
from garfield.elastic.local.settings import LocalSettings
from garfield.runs import outliving

_DAEMON = "daemon"
_START_S = 60.0
_END_S = 600.0  # workers may write checkpoints
_SOON_S = 0.05


class Cluster:
    """The cluster of one directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    def last_config(self) -> dict[str, Any]:
        """The settings of its last start, as far as they were given; none before the first."""
        if not self.config.is_file():
            return {}
        return flattened(read_toml(self.config), settings_of(LocalSettings))

    @property
    def processes(self) -> Path:
        return self.path / "processes"

    @property
    def log(self) -> Path:
        return self.path / "daemon.log"

    def agreement_of(self, job: int) -> Path:
        """The file of a job's agreement."""
        (self.path / "jobs").mkdir(exist_ok=True)
        return self.path / "jobs" / f"{job}.sqlite"

    def checkpoints_of(self, job: int) -> Path:
        """Where a job's checkpoints go."""
        directory = self.path / "checkpoints" / str(job)
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def database(self, *, create: bool = False) -> ClusterDatabase:
        """The state; ConfigError if there is none, or if it cannot be read."""
        return ClusterDatabase(self.path / "cluster.sqlite", create=create)

    def lock(self) -> Any:
        """Keep a second daemon away; ConfigError if there is one."""
        try:
            return outliving.lock(self.path)
        except ConfigError:
            raise ConfigError(
                f"A cluster runs in {self.path} already. Use it, or end it first: "
                "garfield elastic down"
            ) from None
        except OSError as problem:
            raise ConfigError(
                f"{self.path} cannot be written to: {problem.strerror}. Choose another --dir."
            ) from None

    def daemon(self) -> int | None:
        """The pid of the daemon, if it runs: no other process that has got the same pid."""
        with suppress(ConfigError):
            database = self.database()
            try:
                told = database.fact(_DAEMON)
            finally:
                database.close()
            if told:
                pid, started = json.loads(told)
                with suppress(OSError):
                    if outliving.start_time(pid) == started and not _is_over(pid):
                        return int(pid)
        return None

    def set_daemon(self, database: ClusterDatabase, *, runs: bool = True) -> None:
        """Say that this process is the daemon now, or that there is none any more."""
        told = json.dumps([os.getpid(), outliving.start_time(os.getpid())]) if runs else ""
        database.set_facts({_DAEMON: told})

    def start(self, words: Sequence[str]) -> int:
        """Start the daemon beside this process; `words` are those of `garfield` that run it."""
        if (pid := self.daemon()) is not None:
            raise ConfigError(
                f"A cluster runs in {self.path} already (process {pid}). Use it, or end it first: "
                "garfield elastic down"
            )
        self.lock().close()  # refuses, if it must, before anything is started
        with self.log.open("ab") as log:
            at = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", "garfield", *words], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while self.daemon() != process.pid:
            if process.poll() is not None:
                raise _failed(self._told_since(at))
            if time.monotonic() > deadline:
                process.kill()
                raise NodeFailed(f"The daemon did not start in {_START_S:.0f} s. See {self.log}.")
            time.sleep(_SOON_S)
        process.returncode = 0  # it goes on by itself: nobody is to wait for it
        return process.pid

    def end(self) -> bool:
        """Have the daemon end, with all workers, and wait for it; False if none runs."""
        pid = self.daemon()
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            ended = select.select([handle], [], [], _END_S)[0]
            os.close(handle)
            if not ended:
                raise RunError(f"Process {pid} does not end. See {self.log}.")
        return True

    def _told_since(self, at: int) -> str:
        with self.log.open("rb") as log:
            log.seek(at)
            lines = [line.strip() for line in log.read().decode(errors="replace").split("\n")]
        return next((line for line in reversed(lines) if line), "it said nothing")


def default_path() -> Path:
    """Where the cluster of this user is, unless another directory is named."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "garfield" / "elastic"


def _failed(told: str) -> Exception:
    message = told.removeprefix("Error: ")
    return ConfigError(message) if told.startswith("Error: ") else NodeFailed(message)


def _is_over(pid: int) -> bool:
    """Whether it has ended, though its parent has not noticed yet."""
    handle = os.pidfd_open(pid)
    try:
        return bool(select.select([handle], [], [], 0)[0])
    finally:
        os.close(handle)
