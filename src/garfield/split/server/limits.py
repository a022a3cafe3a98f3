"""Hard limits on the memory of worker processes: by control groups, or by RLIMIT_DATA.

Where the kernel's control groups may be used they hold every device to its budget
(`memory_groups`). Elsewhere RLIMIT_DATA holds each worker by itself: an allocation beyond it
fails.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from garfield.core.errors import ConfigError
from garfield.runs.control_groups import MOUNT
from garfield.split.server.limited_memory import DeviceMemory, Source
from garfield.split.server.memory_groups import device_group


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
            Path(f"/proc/{self._pid}/clear_refs").write_text("5")

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
            return device_group(source, name, budget_bytes, mount)
        except OSError as problem:
            why.append(f"{source.value}: {problem}")
    raise ConfigError(f"Memory cannot be limited here: {'; '.join(why)}.")


def _status(pid: int, name: str) -> int:
    """A number of /proc/<pid>/status, in bytes; OSError if the process has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has ended")
