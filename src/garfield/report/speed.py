"""How long rules take on this machine, measured in a few seconds.

A rule's time is a part that depends on n alone and one that grows with d. It is
timed on two widths, both small enough for any memory, and the line through them
is followed to d: the rows are never as wide as the model that is asked about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from garfield.gars import Rule

MOST_ROWS = 300
"""Beyond, some rules take seconds for their arithmetic on n² or n³ numbers alone."""

_MOST_COLUMNS = 1_000_000
_MOST_WORK = 1_000_000_000  # n² × columns: a fraction of a second of distances
_REPEATS = 3


def columns_timed(n: int, d: int) -> int:
    """The width that rules are timed on: d, or less where that would be long or large."""
    return max(1, min(d, _MOST_COLUMNS, _MOST_WORK // n**2))


def time_rules(
    rules: Iterable[Rule],
    n: int,
    f: int,
    d: int,
    *,
    budget_s: float = 8.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[tuple[str, float | None]]:
    """Name and seconds of each rule at width d; None once the budget is spent or n too large."""
    start = clock()
    wide = columns_timed(n, d)
    narrow = max(1, wide // 8)
    rows: Any = None
    for rule in rules:
        if n > MOST_ROWS or clock() - start > budget_s:
            yield rule.name, None
            continue
        if rows is None:
            rows = np.random.default_rng(0).standard_normal((n, wide), dtype=np.float32)
            some = np.ascontiguousarray(rows[:, :narrow])
        short = _seconds(rule, some, f, clock)
        long = _seconds(rule, rows, f, clock) if wide > narrow else short
        per_column = max(0.0, long - short) / max(1, wide - narrow)
        yield rule.name, long + per_column * (d - wide)


def _seconds(rule: Rule, rows: Any, f: int, clock: Callable[[], float]) -> float:
    """The fastest of a few runs: what is slower is the machine's other work."""
    runs = []
    for _ in range(_REPEATS):
        begun = clock()
        rule(rows, f)
        runs.append(clock() - begun)
    return min(runs)
