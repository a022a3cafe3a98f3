"""How calls are timed: in shuffled rounds beside a baseline, and the fastest counts.

Others share the machine, and noise only ever adds time, so the fastest call is
the truest. Every call has its turn in every round: a burst of noise hits all
alike. The baseline runs before each of them and so has the most chances to meet
a quiet moment. How much of the machine others took is told along with it: above
a tenth, ratios say little, as calls that wait for all threads suffer the most.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Call = Callable[[], object]
Name = TypeVar("Name", bound=Hashable)

_QUICK_S = 0.2
_FASTER = 0.95
_PATIENCE = 3.0


def seconds(call: Call) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@dataclass(frozen=True)
class Timed(Generic[Name]):
    """What `fastest` found."""

    best: Mapping[Name, float]
    """Each call's fastest time, in seconds."""
    baseline: float
    """The baseline's."""
    rounds: int
    others: float
    """The share of all cores that other processes took meanwhile: 0 on a quiet machine."""


def fastest(
    calls: Mapping[Name, Call],
    baseline: Call,
    *,
    budget_s: float,
    least: int = 3,
    most: int = 300,
) -> Timed[Name]:
    """Time all calls, each round in another order.

    At least `least` rounds; more until the budget is spent; and up to `_PATIENCE` times the
    budget while a round still finds something faster, which is a sign of noise.
    """
    order = random.Random(0)
    names = list(calls)
    best, best_baseline = dict.fromkeys(names, float("inf")), float("inf")
    rounds, improved_s, began, began_busy = 0, 0.0, time.perf_counter(), _others_s()
    while True:
        order.shuffle(names)  # nobody always runs in the wake of the same other
        for name in names:
            best_baseline = min(best_baseline, _settled(baseline))
            took = _settled(calls[name])
            if took < _FASTER * best[name]:
                improved_s = time.perf_counter() - began
            best[name] = min(best[name], took)
        rounds += 1
        spent_s = time.perf_counter() - began
        enough_s = min(max(budget_s, 1.5 * improved_s), _PATIENCE * budget_s)
        if rounds >= most or (rounds >= least and spent_s * (rounds + 1) / rounds > enough_s):
            others = (_others_s() - began_busy) / (spent_s * (os.cpu_count() or 1))
            return Timed(best, best_baseline, rounds, max(others, 0.0))


def _settled(call: Call) -> float:
    """Of two calls in a row, unless they are slow: the second finds its own data in the caches."""
    took = seconds(call)
    return min(took, seconds(call)) if took < _QUICK_S else took


def _others_s() -> float:
    """Seconds of all cores that somebody else has used so far, or that the host has taken."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _wait, *rest = map(int, stat.readline().split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK") - time.process_time()
