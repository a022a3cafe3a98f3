"""How much memory a rule takes beyond its input: the peak in a process of its own.

This process holds the rows and nothing else. For every rule it forks a child,
which shares the rows, lets the rule warm up on a few columns (threads, imports),
gives freed memory back, resets the peak and runs the rule once. What the peak
exceeds the start by, the result included, is the rule's.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workers import serve
from garfield.gars import parse

_WARM_UP = 100_000  # columns: enough for every thread to start
_M_MMAP_THRESHOLD = -3
_PR_SET_THP_DISABLE = 41  # huge pages would round every array up to 2 MB


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Bytes per rule, None where it cannot be measured (no Linux, or the rule failed)."""
    n, d, f = job["n"], job["d"], job["f"]
    rows = np.random.default_rng(job["seed"]).standard_normal((n, d), dtype=np.float32)

    def run(name: str) -> int:
        rule = parse(name)
        _wait_for_the_end_of(weakref.ref(rule(rows[:, :_WARM_UP], f)))
        return _peak_over_start(lambda: rule(rows, f))

    return {name: _in_child(run, name) for name in job["rules"]}


def _in_child(measure: Callable[[str], int], name: str) -> int | None:
    theirs, ours = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(ours, json.dumps(measure(name)).encode())
        finally:
            os._exit(0)
    os.close(ours)
    with os.fdopen(theirs) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return int(said) if said else None


def _wait_for_the_end_of(vector: weakref.ref[Any]) -> None:
    """A helper thread may hold on to a result for a moment: freed later, it would count as ours."""
    deadline = time.monotonic() + 1.0
    while vector() is not None and time.monotonic() < deadline:
        time.sleep(0.001)


def _peak_over_start(call: Callable[[], object]) -> int:
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is resident now
    start = _status("VmRSS")
    kept = call()  # until the peak has been read
    peak = _status("VmHWM")
    del kept
    return peak - start


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


if __name__ == "__main__":
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
    libc.mallopt(_M_MMAP_THRESHOLD, 65_536)  # a freed array is gone, not kept for the next one
    serve(answer)
