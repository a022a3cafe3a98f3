"""Control groups (`runs/control_groups.py`): one for every device, and one inside for a worker.

A worker that takes more than was reserved for it is killed by the kernel, the others and the
server are not, and all workers together can never hold more than the budget. The groups are made
below the group that this process is in, so whatever limits it keeps limiting its workers.

In a group counts what a process has touched itself, not what it shares with the process it
was forked from: torch's libraries are counted once, outside.
"""

from __future__ import annotations

import itertools
import os
import re
from contextlib import suppress
from pathlib import Path

from garfield.runs.control_groups import (
    MOUNT,
    Version,
    delegate,
    inner_groups,
    own_group,
    remove,
    write,
)
from garfield.split.server.limited_memory import Source

_VERSIONS = {Source.CGROUP_V1: Version.V1, Source.CGROUP_V2: Version.V2}
_PREFIX = "garfield-split-"
_NUMBERS = itertools.count()  # a process may run several servers, each with a device of that name


class _Group:
    """A control group of either version, of a worker or of a device."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def take_in(self, pid: int) -> None:
        write(self.directory / "cgroup.procs", pid)

    def close(self) -> None:
        remove(self.directory)


class GroupV1(_Group):
    """Of version 1."""

    source = Source.CGROUP_V1

    def worker(self, name: str) -> GroupV1:
        return GroupV1(self.directory / name)

    def limit(self, most_bytes: int) -> None:
        both = self.directory / "memory.memsw.limit_in_bytes"  # where swap is counted at all
        try:
            write(self.directory / "memory.limit_in_bytes", most_bytes)
            swap_too = True
        except OSError:  # raised beyond the limit of both together: that one has to go first
            swap_too = False
        with suppress(OSError):
            write(both, most_bytes)
        if not swap_too:
            write(self.directory / "memory.limit_in_bytes", most_bytes)

    @property
    def used_bytes(self) -> int:
        return _number(self.directory / "memory.usage_in_bytes")

    @property
    def peak_bytes(self) -> int:
        return _number(self.directory / "memory.max_usage_in_bytes")

    def forget_peak(self) -> None:
        write(self.directory / "memory.max_usage_in_bytes", 0)

    @property
    def kills(self) -> int:
        return _counted(self.directory / "memory.oom_control", "oom_kill")


class GroupV2(_Group):
    """Of version 2."""

    source = Source.CGROUP_V2

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._highest = 0
        self._peak_file: int | None = None

    def worker(self, name: str) -> GroupV2:
        write(self.directory / "cgroup.subtree_control", "+memory")
        return GroupV2(self.directory / name)

    def limit(self, most_bytes: int) -> None:
        with suppress(OSError):
            write(self.directory / "memory.swap.max", 0)
        write(self.directory / "memory.max", most_bytes)

    @property
    def used_bytes(self) -> int:
        return _number(self.directory / "memory.current")

    @property
    def peak_bytes(self) -> int:
        if self._peak_file is not None:
            return int(os.pread(self._peak_file, 64, 0) or b"0")
        with suppress(OSError):
            return _number(self.directory / "memory.peak")  # since the group was made
        self._highest = max(self._highest, self.used_bytes)  # a kernel before 5.19
        return self._highest

    def forget_peak(self) -> None:
        """Kernels from 6.12 on keep a peak for each open file that was written to."""
        self._highest = 0
        with suppress(OSError):
            if self._peak_file is None:
                self._peak_file = os.open(self.directory / "memory.peak", os.O_RDWR)
            os.pwrite(self._peak_file, b"reset", 0)
            return
        if self._peak_file is not None:
            os.close(self._peak_file)
            self._peak_file = None

    @property
    def kills(self) -> int:
        return _counted(self.directory / "memory.events", "oom_kill")

    def close(self) -> None:
        if self._peak_file is not None:
            os.close(self._peak_file)
            self._peak_file = None
        super().close()


def device_group(
    source: Source, name: str, budget_bytes: int, mount: Path = MOUNT
) -> GroupV1 | GroupV2:
    """A group that holds a device's workers to its budget; OSError where none may be made."""
    parent = own_group(_VERSIONS[source], "memory", mount)
    directory = parent / f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}-{name}"
    if source is Source.CGROUP_V2:
        delegate(parent, "memory")
    sweep(parent)
    group = GroupV1(directory) if source is Source.CGROUP_V1 else GroupV2(directory)
    try:
        group.limit(budget_bytes)
        group.worker("probe").close()
    except OSError:
        group.close()
        raise
    return group


def sweep(parent: Path) -> None:
    """Remove the groups of servers that were killed before they could."""
    for directory in parent.glob(f"{_PREFIX}*"):
        found = re.match(rf"{_PREFIX}(\d+)-", directory.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            for inner in inner_groups(directory):
                with suppress(OSError):
                    inner.rmdir()
            with suppress(OSError):
                directory.rmdir()


def _number(path: Path) -> int:
    text = path.read_text().strip()
    return 1 << 62 if text == "max" else int(text)


def _counted(path: Path, name: str) -> int:
    with suppress(OSError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
