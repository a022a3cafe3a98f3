"""What is installed here, what that makes usable, and how fast it runs.

Versions are read from package metadata: importing torch to print its version
would take seconds. Only the compiled kernels are really loaded, and timed.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_SIMD = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512vl", "neon", "asimd", "sve")
_VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "sve": "SVE", "asimd": "NEON", "neon": "NEON"}
"""What the widest of them is called, widest first."""
_ROWS, _FAULTS, _TURNS = 17, 3, 4
_TIMED = ("average", "median", "multi-krum", "bulyan")


@dataclass(frozen=True)
class Package:
    """A package that some part of the library needs."""

    name: str
    version: str | None
    gives: str
    """What it makes usable."""
    install: str
    """The command that installs it."""


@dataclass(frozen=True)
class Machine:
    """The platform underneath."""

    python: str
    platform: str
    cores: int
    """That this process may use."""
    memory_bytes: int | None
    simd: tuple[str, ...]


@dataclass(frozen=True)
class Kernels:
    """The compiled kernels, without which nothing aggregates."""

    loaded: bool
    problem: str
    """Why they do not load, and the remedy; empty when they do."""
    isa: str | None = None
    """The instruction set in use; None when they do not load."""
    isas: tuple[str, ...] = ()
    """Those that this processor has and the kernels know, widest first."""


@dataclass(frozen=True)
class Speed:
    """Aggregation of n float32 vectors of length d."""

    n: int
    f: int
    d: int
    mean_gb_per_s: float
    """Bytes of rows that plain averaging reads a second."""
    ratios: dict[str, float]
    """Time of each rule, in times of averaging."""


_WANTED = (
    # distributions, first installed counts; what it gives; command
    (("numpy",), "the core: rules, pre-aggregations, attacks", "pip install garfield-ml"),
    (("torch",), "torch tensors, GPUs, `garfield train`", "pip install 'garfield-ml[torch]'"),
    (
        ("tensorflow", "tensorflow-cpu", "tensorflow-macos"),
        "tensorflow tensors, Keras models, `garfield train --framework tensorflow`",
        "pip install 'garfield-ml[tensorflow]'",
    ),
    (
        ("matplotlib",),
        "pictures: `garfield train`, `garfield resilience --picture`",
        "pip install 'garfield-ml[plots]'",
    ),
)


def packages() -> list[Package]:
    """Those that matter, installed or not."""
    return [Package(names[0], _version(names), gives, install) for names, gives, install in _WANTED]


def machine() -> Machine:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Machine(
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=platform.platform(),
        cores=cores or 1,
        memory_bytes=_memory_bytes(),
        simd=_simd(),
    )


def processor() -> str:
    """Its name, and how wide its vectors are: no figure is told without it.

    Virtual machines are often called `AMD EPYC` alone, with AVX-512 and without.
    """
    told = _cpuinfo("model name")
    name = told or platform.processor() or platform.machine()
    vectors = next((said for flag, said in _VECTORS.items() if flag in _simd()), None)
    return f"{name} ({vectors})" if vectors else name


def kernels() -> Kernels:
    """Load the kernels and say how that went."""
    try:
        found = import_module("garfield.kernels")
    except ImportError as problem:
        remedy = (
            "Install it again with a C compiler at hand: pip install --force-reinstall garfield-ml"
        )
        return Kernels(False, f"{problem}. {remedy}")
    return Kernels(True, "", found.isa(), found.isas())


def speed(columns: int = 1_000_000) -> Speed:
    """A few seconds' measurement; the kernels must load."""
    from garfield.gars import GARS
    from garfield.report.speed import time_rules

    rules = [GARS[name] for name in _TIMED]
    # in turns, not rule by rule: a busy moment of the machine must not fall on one rule alone
    turns = [dict(time_rules(rules, _ROWS, _FAULTS, columns)) for _ in range(_TURNS)]
    best = {name: min(turn[name] or float("inf") for turn in turns) for name in _TIMED}
    mean_s = best["average"]
    ratios = {name: seconds / mean_s for name, seconds in best.items()}
    return Speed(_ROWS, _FAULTS, columns, 4e-9 * _ROWS * columns / mean_s, ratios)


def _version(names: tuple[str, ...]) -> str | None:
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _simd() -> tuple[str, ...]:
    """The flags that matter to the kernels, where /proc/cpuinfo tells."""
    present = set((_cpuinfo("flags") or _cpuinfo("features")).split())
    return tuple(flag for flag in _SIMD if flag in present)


def _cpuinfo(field: str) -> str:
    """What the kernel says of the first core; empty where it does not."""
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        return ""
    told = (line.partition(":")[2].strip() for line in lines if line.lower().startswith(field))
    return next(told, "")
