"""Holds each slot to its share of a core: by a control group, or by pacing where none may be made.

A paced worker is stopped (SIGSTOP) whenever it has used more processor time than its share of the
time that passed, for as long as that takes to even out.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from garfield.runs.control_groups import MOUNT, Version, delegate, own_group, remove, write

PERIOD_US = 20_000
"""Shorter than the kernel's usual 100 ms, so that workers who wait for each other wait less."""
_PACE_S = 0.02
_CREDIT_S = 0.05
"""What a worker that was idle may use at once."""


class SlotGroups:
    """One control group for each slot of a cluster."""

    def __init__(self, directory: Path, version: Version, cpus: float) -> None:
        """Make the cluster's group, or find it; OSError where that is not allowed."""
        self.directory, self.version = directory, version
        self._cpus = cpus
        directory.mkdir(exist_ok=True)
        if version is Version.V2:
            write(directory / "cgroup.subtree_control", "+cpu")

    def slot(self, number: int) -> Path:
        """The group of a slot, limited."""
        group = self.directory / f"slot-{number}"
        group.mkdir(exist_ok=True)
        quota = max(1000, round(self._cpus * PERIOD_US))
        if self.version is Version.V1:
            write(group / "cpu.cfs_period_us", PERIOD_US)
            write(group / "cpu.cfs_quota_us", quota)
        else:
            write(group / "cpu.max", f"{quota} {PERIOD_US}")
        return group

    def close(self) -> None:
        """Remove them; all workers have ended."""
        remove(self.directory)


def slot_groups(cluster: Path, cpus: float, mount: Path = MOUNT) -> SlotGroups | None:
    """Control groups for a cluster's slots; None where none may be made."""
    name = f"garfield-elastic-{sha256(os.fsencode(cluster.resolve())).hexdigest()[:12]}"
    for version in Version:
        with suppress(OSError):
            parent = own_group(version, "cpu", mount)
            if version is Version.V2:
                delegate(parent, "cpu")
            groups = SlotGroups(parent / name, version, cpus)
            groups.slot(0)
            return groups
    return None


class Pacer:
    """A thread that holds a process group to a share of a core."""

    def __init__(self, pid: int, cpus: float) -> None:
        """`pid` is the group's first process, whose processor time counts."""
        self._pid, self._cpus = pid, cpus
        self._clock = (~pid << 3) | 2  # the kernel's number for the time of all threads of a pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="garfield-pacer")
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(OSError):  # it has ended
            used, at, debt = time.clock_gettime(self._clock), time.monotonic(), 0.0
            while not self._ended.wait(_PACE_S):
                debt, used, at = self._owed(debt, used, at)
                if debt > 0:
                    os.killpg(self._pid, signal.SIGSTOP)
                    self._ended.wait(debt / self._cpus)
                    os.killpg(self._pid, signal.SIGCONT)

    def _owed(self, debt: float, used: float, at: float) -> tuple[float, float, float]:
        used_now, now = time.clock_gettime(self._clock), time.monotonic()
        debt = max(-_CREDIT_S, debt + used_now - used - self._cpus * (now - at))
        return debt, used_now, now
