"""Hard limits on the memory of worker processes, and their peaks, from one source.

Where the kernel's control groups may be used, version 1 or 2, every device's budget is a
group, and every worker of it a group inside: a worker that takes more than was reserved for
it is killed by the kernel, the others and the server are not, and all workers together can
never hold more than the budget. The groups are made below the group that this process is in,
so whatever limits it keeps limiting its workers. Elsewhere RLIMIT_DATA holds each worker by
itself: an allocation beyond it fails.

In a group counts what a process has touched itself, not what it shares with the process it
was forked from: torch's libraries are counted once, outside.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import resource
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Protocol

from garfield.core.errors import ConfigError

MOUNT = Path("/sys/fs/cgroup")
_PREFIX = "garfield-split-"
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # as malloc.h has them
_REMOVE_S = 2.0
_NUMBERS = itertools.count()  # a process may run several servers, each with a device of that name


class Source(Enum):
    """What limits memory here, and tells peaks."""

    CGROUP_V1 = "cgroup v1"
    CGROUP_V2 = "cgroup v2"
    RLIMIT = "RLIMIT_DATA"


class ProcessMemory(Protocol):
    """The memory of one worker process."""

    def take_in(self, pid: int) -> None:
        """Hold this process from now on."""

    def limit(self, most_bytes: int) -> None:
        """Never let it have more; OSError if it has more already, and cannot give it back."""

    @property
    def used_bytes(self) -> int:
        """What it has now."""

    @property
    def peak_bytes(self) -> int:
        """The most it had since `forget_peak`."""

    def forget_peak(self) -> None:
        """Begin to look for a peak anew."""

    @property
    def kills(self) -> int:
        """How often the limit has killed a process in it."""

    def close(self) -> None:
        """Undo what was made for it; the process has ended."""


class DeviceMemory(Protocol):
    """The memory of all workers of a device."""

    source: Source

    def worker(self, name: str) -> ProcessMemory:
        """What will hold one more worker."""

    @property
    def peak_bytes(self) -> int:
        """The most they had together, as far as the source can tell."""

    @property
    def kills(self) -> int:
        """How many processes the budget itself, not one worker's limit, has killed."""

    def close(self) -> None: ...


class GroupV1:
    """A control group of version 1, of a worker or of a device."""

    source = Source.CGROUP_V1

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def worker(self, name: str) -> GroupV1:
        return GroupV1(self.directory / name)

    def take_in(self, pid: int) -> None:
        _write(self.directory / "cgroup.procs", pid)

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

    def close(self) -> None:
        _remove(self.directory)


class GroupV2:
    """A control group of version 2, of a worker or of a device."""

    source = Source.CGROUP_V2

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self._highest = 0
        self._peak_file: int | None = None

    def worker(self, name: str) -> GroupV2:
        _write(self.directory / "cgroup.subtree_control", "+memory")
        return GroupV2(self.directory / name)

    def take_in(self, pid: int) -> None:
        _write(self.directory / "cgroup.procs", pid)

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
        _remove(self.directory)


class LimitedProcess:
    """A worker held by RLIMIT_DATA: what it allocates privately, beyond what it began with."""

    def __init__(self) -> None:
        self._pid = 0
        self._inherited = 0
        self._shared = 0

    def take_in(self, pid: int) -> None:
        self._pid = pid
        self._inherited = _status(pid, "RssAnon")
        self._shared = _status(pid, "RssFile") + _status(pid, "RssShmem")

    def limit(self, most_bytes: int) -> None:
        mapped_beyond = max(0, _status(self._pid, "VmData") - self.used_bytes)
        soft = most_bytes + mapped_beyond  # mapped and never touched: thread stacks, arenas
        resource.prlimit(self._pid, resource.RLIMIT_DATA, (soft, resource.RLIM_INFINITY))

    @property
    def used_bytes(self) -> int:
        return max(0, _status(self._pid, "RssAnon") - self._inherited)

    @property
    def peak_bytes(self) -> int:
        beyond = _status(self._pid, "VmHWM") - self._shared - self._inherited
        return max(self.used_bytes, beyond)

    def forget_peak(self) -> None:
        with suppress(OSError):
            _write(Path(f"/proc/{self._pid}/clear_refs"), 5)

    @property
    def kills(self) -> int:
        return 0  # an allocation fails instead

    def close(self) -> None:
        return


class LimitedProcesses:
    """Workers that are held one by one, as no control group may be made here."""

    source = Source.RLIMIT

    def __init__(self) -> None:
        self._workers: list[LimitedProcess] = []

    def worker(self, name: str) -> LimitedProcess:
        self._workers.append(LimitedProcess())
        return self._workers[-1]

    @property
    def peak_bytes(self) -> int:
        """The sum of what they have now: together they have no peak that anybody keeps."""
        total = 0
        for worker in self._workers:
            with suppress(OSError):
                total += worker.used_bytes
        return total

    @property
    def kills(self) -> int:
        return 0

    def close(self) -> None:
        self._workers.clear()


def device_memory(
    name: str, budget_bytes: int, sources: Sequence[Source] = tuple(Source), mount: Path = MOUNT
) -> DeviceMemory:
    """Hold a device's workers to its budget by the first of these sources that works here."""
    why = []
    for source in sources:
        if source is Source.RLIMIT:
            return LimitedProcesses()
        try:
            directory = own_group(source, mount) / f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}-{name}"
            group: GroupV1 | GroupV2
            if source is Source.CGROUP_V1:
                sweep(directory.parent)
                group = GroupV1(directory)
            else:
                _delegate(directory.parent)
                sweep(directory.parent)
                group = GroupV2(directory)
        except OSError as problem:
            why.append(f"{source.value}: {problem}")
            continue
        try:
            group.limit(budget_bytes)
            group.worker("probe").close()
        except OSError as problem:
            group.close()
            why.append(f"{source.value}: {problem}")
            continue
        return group
    raise ConfigError(f"Memory cannot be limited here: {'; '.join(why)}.")


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


def steady_heap() -> None:
    """Make glibc give memory back as soon as it is free, so that what a batch needs is plain.

    `runs.process.keep_heap` is the opposite, and faster: it keeps what was freed. Here a batch
    that follows a larger one must not count as large, and one prediction must hold for all.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 128 << 10)
        libc.mallopt(_M_TRIM_THRESHOLD, 128 << 10)
        libc.mallopt(_M_ARENA_MAX, 2)


def trim_heap() -> None:
    """Give back to the system what is free."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


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


def _status(pid: int, name: str) -> int:
    """A number of /proc/<pid>/status, in bytes; OSError if the process has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has ended")


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
