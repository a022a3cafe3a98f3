"""What a worker measures for the controller: speed, and how much of its slot it uses.

On a GPU compute and memory use come from NVML, if `pynvml` is installed; on a CPU from the times
and the resident size of this process.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch


class Meter:
    """Counts steps since the last report."""

    def __init__(self) -> None:
        self._page = os.sysconf("SC_PAGE_SIZE")
        self.restart()

    def restart(self) -> None:
        """Forget what was counted: what comes now is not to be averaged with it."""
        self._began, self._cpu = time.perf_counter(), time.process_time()
        self._steps = self._samples = 0

    def count(self, samples: int) -> None:
        """Note a step that was applied, with so many samples over all workers."""
        self._steps += 1
        self._samples += samples

    def report(self) -> dict[str, Any]:
        """What was measured since the last report."""
        took = max(time.perf_counter() - self._began, 1e-9)
        busy = (time.process_time() - self._cpu) / took / torch.get_num_threads()
        measured = {
            "time": time.time(),
            "throughput": self._samples / took,
            "step_s": took / max(self._steps, 1),
            "cpu": min(busy, 1.0),
            "rss_bytes": self._resident(),
            **_of_the_gpu(),
        }
        self.restart()
        return measured

    def _resident(self) -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * self._page


def _of_the_gpu() -> dict[str, float]:
    """Shares of the GPU's compute and memory in use; nothing where there is no GPU or no NVML."""
    if not torch.cuda.is_available():
        return {}
    try:
        pynvml: Any = import_module("pynvml")
    except ImportError:
        return {}
    pynvml.nvmlInit()
    uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)  # CUDA's numbers need not be NVML's
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return {
        "gpu": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "gpu_memory": memory.used / memory.total,
    }
