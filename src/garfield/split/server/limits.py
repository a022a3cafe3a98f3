"""Hard limits on the memory of worker processes: by control groups, or by RLIMIT_DATA.

Where the kernel's control groups may be used they hold every device to its budget
(`memory_groups`). Elsewhere RLIMIT_DATA holds each worker by itself: an allocation beyond it
fails.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from garfield.core.errors import ConfigError
from garfield.runs.control_groups import MOUNT
from garfield.split.server.limited_memory import DeviceMemory, Source
from garfield.split.server.memory_groups import device_group


class LimitedProcess:
    """A worker held by RLIMIT_DATA: what it allocates privately, beyond what it began with."""

    def __init__(self, ended: Callable[[LimitedProcess], None]) -> None:
        """`ended` is told when nobody needs this any more."""
        self._ended = ended
        self._pid = 0
        self._began = ""
        self._inherited = 0
        self._shared = 0
        self.highest_bytes = 0
        """The most that it was ever seen to have; `forget_peak` does not touch it."""

    def take_in(self, pid: int) -> None:
        self._pid, self._began = pid, _began(pid)
        self._inherited = self._status("RssAnon")
        self._shared = self._status("RssFile") + self._status("RssShmem")

    def limit(self, most_bytes: int) -> None:
        mapped_beyond = max(0, self._status("VmData") - self.used_bytes)
        soft = most_bytes + mapped_beyond  # mapped and never touched: thread stacks, arenas
        resource.prlimit(self._pid, resource.RLIMIT_DATA, (soft, resource.RLIM_INFINITY))

    @property
    def used_bytes(self) -> int:
        return max(0, self._status("RssAnon") - self._inherited)

    @property
    def peak_bytes(self) -> int:
        return self.look()

    def look(self) -> int:
        """Its peak since `forget_peak`, which counts for the highest from now on."""
        beyond = self._status("VmHWM") - self._shared - self._inherited
        peak = max(self.used_bytes, beyond)
        self.highest_bytes = max(self.highest_bytes, peak)
        return peak

    def forget_peak(self) -> None:
        with suppress(OSError):
            self.look()
            Path(f"/proc/{self._pid}/clear_refs").write_text("5")

    @property
    def kills(self) -> int:
        return 0  # an allocation fails instead

    def close(self) -> None:
        self._ended(self)

    def _status(self, name: str) -> int:
        """A number of its status, in bytes; OSError once it has ended, whoever has its pid then."""
        if _began(self._pid) == self._began:
            for line in Path(f"/proc/{self._pid}/status").read_text().splitlines():
                if line.startswith(f"{name}:"):
                    return int(line.split()[1]) * 1024
        raise ProcessLookupError(f"process {self._pid} has ended")


class LimitedProcesses:
    """Workers that are held one by one, as no control group may be made here."""

    source = Source.RLIMIT

    def __init__(self) -> None:
        self._workers: list[LimitedProcess] = []
        self._highest = 0

    def worker(self, name: str) -> LimitedProcess:
        self._workers.append(LimitedProcess(self._ended))
        return self._workers[-1]

    @property
    def peak_bytes(self) -> int:
        """The largest sum of their own peaks, of those that there were at a time.

        Nobody keeps a peak of all together; it was not higher than this.
        """
        for worker in [*self._workers]:  # of which one may end meanwhile, in another thread
            with suppress(OSError):  # it has ended: what was seen of it counts
                worker.look()
        self._highest = max(self._highest, sum(each.highest_bytes for each in self._workers))
        return self._highest

    def _ended(self, worker: LimitedProcess) -> None:
        """Count it for the last time, together with those that were there with it."""
        if worker in self._workers:
            self._highest = self.peak_bytes
            self._workers.remove(worker)

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


def _began(pid: int) -> str:
    """When a process began, as the kernel counts: a later one with its pid began later."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
