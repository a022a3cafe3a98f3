"""What a change of workers costs a real job: in-process, and by torchrun tuned and with defaults.

Two workers train. A third is added, then one of the three leaves: the last one, or the one with
rank 0. Of each change

    pause     the time without training on a worker that stays, from the end of its last step
              before to the end of its first step after; the longest of those who stay
    latency   from the request to the end of the first step at the new size

A cell is one engine, one size of model and one choice of who leaves, with workers started for it.
It has the machine to itself (`alone`), is kept in results/elastic_rescale/ when it is done, and not
run again (--anew does). Each worker computes with one thread. Goals: a pause of at most 1 s with
20 million parameters, its median 5 times shorter than a tuned torchrun's and 30 times shorter than
that of torchrun's defaults.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.alone import alone
from benchmarks.elastic_engines import ENGINES, Line, Session
from benchmarks.elastic_worker import WIDTHS
from benchmarks.kept_runs import kept
from garfield.report.plain_tables import plain_table

QUESTION = "How long does a real job stand still when its workers change, in-process and torchrun?"
LEAVERS = ("last", "first")
CHANGES = {"up": "2 → 3", "last": "3 → 2", "first": "3 → 2, rank 0 leaves"}
GOAL_PAUSE_S, GOAL_SIZE = 1.0, "20 M"
GOAL_TIMES = {"torchrun, tuned": 5.0, "torchrun, defaults": 30.0}
_STEADY = 8
"""Steps that every worker takes at one size before the next change."""

Found = dict[str, dict[str, float]]


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--engines", choices=list(ENGINES), nargs="+", default=list(ENGINES))
    group.add_argument("--sizes", choices=list(WIDTHS), nargs="+", default=list(WIDTHS))
    group.add_argument("--repeats", type=int, default=5, help="cells of each kind")
    group.add_argument(
        "--slow-repeats", type=int, default=2, help="the same, of torchrun's defaults (minutes)"
    )
    group.add_argument("--anew", action="store_true", help="measure also what is kept")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure every cell, one repetition of all before the next."""
    repeats = {name: _repeats(name, options) for name in options.engines}
    lines: list[dict[str, Any]] = []
    for repeat in range(max(repeats.values())):
        for size in options.sizes:
            for engine in (name for name in options.engines if repeat < repeats[name]):
                for leaver in LEAVERS:
                    lines += _cell(engine, size, leaver, repeat, options.anew)
    changes = [_summary(lines, size, change) for size in options.sizes for change in CHANGES]
    console.print(_table(changes, options.engines))
    for told in verdicts(lines):
        console.print(told)
    return {"rescalings": lines, "changes": changes}


def _repeats(engine: str, options: argparse.Namespace) -> int:
    if options.quick:
        return 1
    return int(options.slow_repeats if engine == "torchrun, defaults" else options.repeats)


def _cell(engine: str, size: str, leaver: str, repeat: int, anew: bool) -> list[dict[str, Any]]:
    what = {"engine": engine, "size": size, "leaver": leaver, "repeat": repeat}
    name = f"{engine}-{size}-{leaver}-{repeat}".replace(" ", "").replace(",", "-")
    found: Found = kept("elastic_rescale", name, what, lambda: _measured(what), fresh=anew)
    return [{**what, "change": change, **numbers} for change, numbers in found.items()]


def _measured(what: dict[str, Any]) -> Found:
    with (
        alone(),
        tempfile.TemporaryDirectory(prefix="garfield-rescale-") as directory,
        ENGINES[what["engine"]](Path(directory), what["size"]) as session,
    ):
        session.add("w0", "w1")
        session.wait_for_steps(["w0", "w1"], 2, _STEADY)
        began = time.monotonic()
        session.add("w2")
        there = ["w0", "w1", "w2"]
        session.wait_for_steps(there, 3, _STEADY)
        up = _cost(session, began, ["w0", "w1"], 3)
        by_rank = sorted(there, key=lambda member: session.lines(member)[-1]["rank"])
        leaving = by_rank[-1 if what["leaver"] == "last" else 0]
        staying = [member for member in there if member != leaving]
        began = time.monotonic()
        session.remove(leaving)
        session.wait_for_steps(staying, 2, _STEADY)
        return {"up": up, what["leaver"]: _cost(session, began, staying, 2)}


def _cost(session: Session, began: float, staying: Sequence[str], workers: int) -> dict[str, float]:
    """Of a change that was asked for at `began` and is over."""
    records = {member: session.lines(member) for member in staying}
    firsts = {name: _first_after(lines, began, workers) for name, lines in records.items()}
    pauses = [pause(lines, began, firsts[name]) for name, lines in records.items()]
    step_s = statistics.median(
        late["time"] - early["time"] for early, late in pairwise(records[staying[0]][-_STEADY:])
    )
    latency = min(line["time"] for line in firsts.values()) - began
    return {"pause_s": max(pauses), "latency_s": latency, "step_s": step_s}


def _first_after(lines: Sequence[Line], began: float, workers: int) -> Line:
    return next(line for line in lines if line["time"] > began and line["workers"] == workers)


def pause(lines: Sequence[Line], began: float, first: Line) -> float:
    """The time between steps of different groups, from the request to the first step after it."""
    return sum(
        late["time"] - early["time"]
        for early, late in pairwise(lines)
        if began < late["time"] <= first["time"] and _group(early) != _group(late)
    )


def _group(line: Line) -> tuple[int, int]:
    return line["pid"], line["generation"]


def _summary(lines: Sequence[dict[str, Any]], size: str, change: str) -> dict[str, Any]:
    """Medians of one change, by engine, with the least and the most."""
    of: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        if (line["size"], line["change"]) == (size, change):
            of[line["engine"]].append(line)
    found: dict[str, Any] = {"size": size, "change": CHANGES[change]}
    for engine, its in of.items():
        found[engine] = {
            key: {"median": statistics.median(values), "least": min(values), "most": max(values)}
            for key in ("pause_s", "latency_s", "step_s")
            for values in [[line[key] for line in its]]
        } | {"count": len(its)}
    return found


def _table(changes: Sequence[dict[str, Any]], engines: Sequence[str]) -> Table:
    table = plain_table("parameters", "change", "engine", "pause, s", "latency, s", "n", right=3)
    for line in changes:
        for engine in (name for name in engines if name in line):
            cells = [_spread(line[engine][key]) for key in ("pause_s", "latency_s")]
            table.add_row(line["size"], line["change"], engine, *cells, str(line[engine]["count"]))
    return table


def _spread(of: dict[str, float]) -> str:
    return f"{of['median']:.2f} [{of['least']:.2f}, {of['most']:.2f}]"


def verdicts(lines: Sequence[dict[str, Any]]) -> list[str]:
    pauses: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in lines:
        pauses[line["engine"], line["size"]].append(line["pause_s"])
    told = []
    for size in dict.fromkeys(line["size"] for line in lines):
        ours = pauses["in-process", size]
        if not ours:
            continue
        median = statistics.median(ours)
        if size == GOAL_SIZE:
            word = "met" if median <= GOAL_PAUSE_S else "missed"
            told.append(
                f"{size}: median pause {median:.2f} s, longest {max(ours):.2f} s; goal "
                f"{GOAL_PAUSE_S:g} s {word}."
            )
        for engine, goal in GOAL_TIMES.items():
            if theirs := pauses[engine, size]:
                times = statistics.median(theirs) / median
                word = "met" if times >= goal else "missed"
                told.append(
                    f"{size}: {times:.0f} times shorter than {engine}; goal {goal:g} {word}."
                )
    return told
