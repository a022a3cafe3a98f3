"""ByzFL's rules, timed in ByzFL's own environment beside torch.mean in the same process.

One job is one rule at one size. Its cost is foretold from a sixteenth of the
columns, so that a call that would take minutes is skipped instead of made.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import resource
import signal
import sys
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from benchmarks.timing import fastest, seconds
from benchmarks.workers import serve

_MOST_SUBSETS = 1_000_000
_PROBE = 16  # the share of columns that foretells the cost
_MORE_MEANS = 8
_MEMORY_SHARE = 0.6  # of what is free; beyond it an allocation fails instead of the machine


class _OverTime(Exception):  # noqa: N818 (a signal from the alarm)
    pass


def rules(f: int) -> dict[str, Callable[[Any], Any]]:
    """Garfield's names for ByzFL's rules, with ByzFL's defaults unless said otherwise."""
    byz = byzfl_part("aggregators")
    return {
        "average": byz.Average(),
        "median": byz.Median(),
        "trimmed-mean": byz.TrMean(f),
        "meamed": byz.Meamed(f),
        "krum": byz.Krum(f),
        "multi-krum": byz.MultiKrum(f),
        "mda": byz.MDA(f),
        "monna": byz.MoNNA(f),
        "caf": byz.CAF(f),
        "geometric-median": byz.GeometricMedian(),  # three steps; ours goes on until it settles
        "centered-clipping": lambda rows: byz.CenteredClipping(L=3)(rows),  # as many as ours
        "nnm+multi-krum": lambda rows: byz.MultiKrum(f)(byz.NNM(f)(rows)),
    }


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """The times of the rule and of the mean, or a note that says why there are none."""
    import torch

    name, n, f, d, limit_s = (job[key] for key in ("rule", "n", "f", "d", "limit_s"))
    rule = rules(f).get(name)
    if rule is None:
        return {}
    if name == "mda" and math.comb(n, f) > _MOST_SUBSETS:
        return {"note": "skipped", "why": f"{math.comb(n, f):,} subsets"}
    rows = _rows(n, d, job["seed"])

    def mean() -> object:
        return torch.mean(rows, 0)

    signal.signal(signal.SIGALRM, _over_time)
    signal.alarm(math.ceil(limit_s))
    try:
        foretold_s = _foretell(rule, rows, d)
        if foretold_s > limit_s:
            return {"note": "skipped", "why": f"about {foretold_s:.0f} s a call"}
        signal.alarm(math.ceil(3 * limit_s))
        limits = {"budget_s": job["budget_s"], "least": 1, "most": 300}
        timed = fastest({name: lambda: rule(rows)}, mean, **limits)
    except _OverTime:
        return {"note": f"> {limit_s:.0f} s", "why": "stopped"}
    except (RuntimeError, MemoryError) as problem:
        wanted = re.search(r"allocate (\d+) bytes", str(problem))
        why = f"wants {int(wanted[1]) / 1e9:.0f} GB more" if wanted else str(problem)
        return {"note": "fails", "why": why}
    finally:
        signal.alarm(0)
    # a slow rule has few rounds, which is too few for a mean of some milliseconds
    mean_s = min(timed.baseline, *(seconds(mean) for _ in range(_MORE_MEANS)))
    return {"ms": timed.best[name] * 1e3, "mean_ms": mean_s * 1e3, "others": timed.others}


def _foretell(rule: Callable[[Any], Any], rows: Any, d: int) -> float:
    few, tiny = (rows[:, :columns].contiguous() for columns in (max(1, d // _PROBE), 1000))
    rule(tiny)  # the first call ever pays for imports and threads
    fixed = seconds(lambda: rule(tiny))  # what does not grow with d, such as MDA's subsets
    return fixed + max(seconds(lambda: rule(few)) - fixed, 0.0) * _PROBE


@lru_cache(maxsize=1)
def _rows(n: int, d: int, seed: int) -> Any:
    import torch

    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


@lru_cache(maxsize=2)
def byzfl_part(name: str) -> Any:
    """byzfl.aggregators, say, alone: the package's own __init__ wants torchvision and seaborn."""
    if "byzfl" not in sys.modules:
        spec = importlib.util.find_spec("byzfl")
        assert spec is not None
        package = types.ModuleType("byzfl")
        package.__path__ = list(spec.submodule_search_locations or ())
        sys.modules["byzfl"] = package
    return importlib.import_module(f"byzfl.{name}")


def _over_time(*_: object) -> None:
    raise _OverTime


def _limit_memory() -> None:
    with open("/proc/meminfo") as info:
        free = next(int(line.split()[1]) * 1024 for line in info if "MemAvailable" in line)
    resource.setrlimit(resource.RLIMIT_DATA, (int(_MEMORY_SHARE * free),) * 2)


if __name__ == "__main__":
    _limit_memory()
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    serve(answer)
