"""What holds worker processes to their memory and tells their peaks: one contract."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


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
