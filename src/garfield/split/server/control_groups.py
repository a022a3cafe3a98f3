"""The kernel's control groups, version 1 or 2: a group for every device, one inside for a worker.

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
import time
from contextlib import suppress
from pathlib import Path

from garfield.split.server.limited_memory import Source

MOUNT = Path("/sys/fs/cgroup")
_PREFIX = "garfield-split-"
_REMOVE_S = 2.0
_NUMBERS = itertools.count()  # a process may run several servers, each with a device of that name


class _Group:
    """A control group of either version, of a worker or of a device."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def take_in(self, pid: int) -> None:
        _write(self.directory / "cgroup.procs", pid)

    def close(self) -> None:
        _remove(self.directory)


class GroupV1(_Group):
    """Of version 1."""

    source = Source.CGROUP_V1

    def worker(self, name: str) -> GroupV1:
        return GroupV1(self.directory / name)

    def limit(self, most_bytes: int) -> None:
        both = self.directory / "memory.memsw.limit_in_bytes"  # where swap is counted at all
        try:
            _write(self.directory / "memory.limit_in_bytes", most_bytes)
            swap_too = True
        except OSError:  # raised beyond the limit of both together: that one has to go first
            swap_too = False
        with suppress(OSError):
            _write(both, most_bytes)
        if not swap_too:
            _write(self.directory / "memory.limit_in_bytes", most_bytes)

    @property
    def used_bytes(self) -> int:
        return _number(self.directory / "memory.usage_in_bytes")

    @property
    def peak_bytes(self) -> int:
        return _number(self.directory / "memory.max_usage_in_bytes")

    def forget_peak(self) -> None:
        _write(self.directory / "memory.max_usage_in_bytes", 0)

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
        _write(self.directory / "cgroup.subtree_control", "+memory")
        return GroupV2(self.directory / name)

    def limit(self, most_bytes: int) -> None:
        with suppress(OSError):
            _write(self.directory / "memory.swap.max", 0)
        _write(self.directory / "memory.max", most_bytes)

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
    directory = own_group(source, mount) / f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}-{name}"
    if source is Source.CGROUP_V2:
        _delegate(directory.parent)
    sweep(directory.parent)
    group = GroupV1(directory) if source is Source.CGROUP_V1 else GroupV2(directory)
    try:
        group.limit(budget_bytes)
        group.worker("probe").close()
    except OSError:
        group.close()
        raise
    return group


def own_group(source: Source, mount: Path = MOUNT, table: str = "/proc/self/cgroup") -> Path:
    """The directory of the control group that this process is in; OSError if there is none."""
    for line in Path(table).read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if source is Source.CGROUP_V1 and "memory" in controllers.split(","):
            return mount / "memory" / path.lstrip("/")
        if source is Source.CGROUP_V2 and number == "0" and not controllers:
            group = mount / path.lstrip("/")
            if "memory" in (group / "cgroup.controllers").read_text().split():
                return group
    raise FileNotFoundError("no group with a memory controller")


def sweep(parent: Path) -> None:
    """Remove the groups of servers that were killed before they could."""
    for directory in parent.glob(f"{_PREFIX}*"):
        found = re.match(rf"{_PREFIX}(\d+)-", directory.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            for inner in _inner(directory):
                with suppress(OSError):
                    inner.rmdir()
            with suppress(OSError):
                directory.rmdir()


def _delegate(group: Path) -> None:
    """Let groups below this one have memory limits: version 2 wants it empty of processes."""
    control = group / "cgroup.subtree_control"
    if "memory" in control.read_text().split():
        return
    try:
        _write(control, "+memory")
    except OSError:
        leaf = group / "garfield-server"
        leaf.mkdir(exist_ok=True)
        _write(leaf / "cgroup.procs", os.getpid())
        _write(control, "+memory")


def _write(path: Path, value: int | str) -> None:
    with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
        file.write(str(value).encode())


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


def _inner(directory: Path) -> list[Path]:
    """The groups inside a group, if it is still there."""
    with suppress(OSError):
        return [each for each in directory.iterdir() if each.is_dir()]
    return []


def _remove(directory: Path) -> None:
    """Remove a group; the kernel may take a moment to see that its processes are gone."""
    deadline = time.monotonic() + _REMOVE_S
    for inner in _inner(directory):
        _remove(inner)
    while directory.exists():
        try:
            directory.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                return  # the next server sweeps it
            time.sleep(0.01)
