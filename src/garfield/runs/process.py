"""Prepare a process for a run: its heap, its threads, its name, when it ends; and its memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

from garfield.core.frameworks import FRAMEWORKS, tensorflow
from garfield.runs import ends_with_parent
from garfield.runs.interrupts import raise_again_if_dropped

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # as malloc.h has them
_LARGEST_FROM_HEAP = 32 << 20  # bytes; glibc allows no more. Larger pieces are whole vectors
_PR_SET_PDEATHSIG = 1

# TensorFlow may be forked after it was imported, but not after it has computed anything:
# its threads would be missing in the child. So it is imported ahead, and nothing more.
# torch imports its compiler at an optimizer's first step, compiled or not: 1.4 s and 72 MB of
# every server. Imported ahead, 4 servers with 5 workers begin, do 2 steps and end in 5.4 s instead
# of 7.3, on two cores.
_PRELOADED = {
    "torch": ("torch", "torch._dynamo"),
    "tensorflow": ("garfield.adapters.tensorflow_adapter",),
}


def keep_heap() -> None:
    """Keep what a step frees for the next one, in this process and on glibc.

    A backward pass frees and allocates megabytes. By default glibc gives such pieces back to
    the system and gets them anew, a page fault for every 4 KB: 8,200 a step of CifarNet, 19
    of its 98 ms of processor time; with this, 35 faults and 92 ms. Few arenas, as gRPC's
    threads would otherwise hold on to chunks in one each.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGEST_FROM_HEAP)
        mallopt(_TRIM_THRESHOLD, 512 << 20)
        mallopt(_ARENA_MAX, 2)


def peak_memory_bytes() -> int:
    """The most that this process has held so far.

    Linux's ru_maxrss is no less than what the process that started this one held then, so the
    kernel's own mark of this address space is read where there is one.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, however that ends.

    By itself a forkserver lives as long as any process that it has forked, so that a
    supervisor that is killed would leave all of them behind.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def ending_with_parent(command: Iterable[str | Path]) -> list[str]:
    """That command, to be killed when this process ends, or the thread of it that starts it.

    It is the same process: its pid, its signals and its exit code are the command's. Ctrl-C reaches
    it, whatever this process was started with.
    """
    words = [str(word) for word in command]
    if sys.platform != "linux":
        return words
    return [sys.executable, "-I", "-S", ends_with_parent.__file__, str(os.getpid()), *words]


def end_on_sigterm() -> None:
    """Have SIGTERM raise SystemExit in the main thread, once, wherever that is then."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not disturb the first
        sys.exit(0)

    raise_again_if_dropped(SystemExit, [signal.SIGTERM], end)


def name_process(name: str) -> None:
    """Show this process under that name in ps, and in top as far as its 15 characters go."""
    from setproctitle import setproctitle, setthreadtitle

    setproctitle(f"garfield: {name}")
    setthreadtitle(name)


def imported() -> tuple[str, ...]:
    """Frameworks that this process has imported."""
    return tuple(name for name in FRAMEWORKS if name in sys.modules)


def preload_modules(frameworks: Iterable[str]) -> list[str]:
    """Modules that a forkserver imports once for all processes that use these frameworks."""
    return [module for name in FRAMEWORKS if name in frameworks for module in _PRELOADED[name]]


def seed_draws(seed: int, frameworks: Collection[str]) -> None:
    """Fix what models draw while they compute, for dropout say."""
    if "torch" in frameworks:
        import torch

        torch.default_generator.manual_seed(seed)


def use_threads(count: int, frameworks: Collection[str]) -> None:
    """Hold kernels and frameworks to so many threads: processes of a machine share its cores."""
    from garfield.kernels import set_threads

    set_threads(count)
    if "torch" in frameworks:
        import torch

        torch.set_num_threads(count)
    if "tensorflow" in frameworks:
        in_tensorflow = tensorflow().config.threading
        with contextlib.suppress(RuntimeError):  # it has computed already, with its own threads
            in_tensorflow.set_intra_op_parallelism_threads(count)
            in_tensorflow.set_inter_op_parallelism_threads(1)
