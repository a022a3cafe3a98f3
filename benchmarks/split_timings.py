"""How good planners are, by raw timings of every cut: what `split_best` decides, without doing it.

A line of the raw file is a JSON object of one of four kinds. The last plan of a setting counts.

    machine    where and when the lines behind it were made
    plan       a setting's situation as a client measured it, in another run than those timed
    timed      a visit: so many iterations of real training at one cut, after two to warm up
    finished   all that a setting needed is there

A cut's time is the mean of all its iterations, an even number a visit, and its deviation the
standard error of that mean. A visit to a cut that is far slower than the best may be broken off: it
then says what an iteration takes at least. The best cut is the one with the shortest time; a
planner is right where its own cut takes at most 5 % more, or two standard deviations of the ratio
of the two, at most 10 %.
Planners are pure, so what they choose is computed here, from the situation of the raw file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from garfield.split.planner import Costs, ServerLoad, Situation, choose

TOLERANCE, MOST_TOLERANCE = 0.05, 0.10
DEVIATION = 0.05
"""Cuts that matter are repeated until their deviation is below this."""
LEAST_ITERATIONS, MOST_VISITS = 4, 5
NEAR = 1.15
"""A cut that takes up to so many times the best matters."""


@dataclass(frozen=True)
class Setting:
    """What a training is given."""

    model: str
    stored_as: str
    batch: int
    mbps: float

    def __str__(self) -> str:
        return f"{self.model} {self.stored_as} batch {self.batch} {self.mbps:g} Mbps"


@dataclass
class CutTime:
    """All visits to one cut."""

    seconds: list[float] = field(default_factory=list)
    visits: int = 0
    at_least_s: float | None = None
    """What an iteration takes at least, where none was waited for."""

    @property
    def mean_s(self) -> float:
        """Of an iteration; what it takes at least where it is not known."""
        if self.seconds:
            return math.fsum(self.seconds) / len(self.seconds)
        return self.at_least_s if self.at_least_s is not None else math.inf

    @property
    def is_bound(self) -> bool:
        """Whether only the least is known."""
        return not self.seconds

    @property
    def deviation(self) -> float:
        """The standard error of the mean as a share of it, by the means of pairs of iterations.

        Pieces come in bursts: a long iteration is followed by a short one (0.28 s and 1.89 s, say,
        where the link carries one in 1.2), so single ones would tell too little of their mean.
        """
        pairs = zip(self.seconds[::2], self.seconds[1::2], strict=False)
        return standard_error([(first + second) / 2 for first, second in pairs])


@dataclass
class Timings:
    """What the raw file holds of one setting."""

    situation: Situation | None = None
    cuts: tuple[int, ...] = ()
    """Those that differ, as `planner.distinct_cuts` merged them when the setting was begun."""
    times: dict[int, CutTime] = field(default_factory=dict)
    finished: bool = False
    took_s: float = 0.0

    @property
    def best_s(self) -> float:
        """The shortest time of an iteration so far."""
        return min((t.mean_s for t in self.times.values() if not t.is_bound), default=math.inf)

    def chosen(self, planner: str) -> int:
        """The cut that a planner would choose, as one of those that differ."""
        assert self.situation is not None
        return representative(self.cuts, choose(self.situation, planner).split)

    def unsettled(self, planners: Sequence[str]) -> list[int]:
        """Cuts that must be visited again: near the best or chosen, and not known well enough."""
        chosen = {self.chosen(name) for name in planners}
        return [cut for cut, time in sorted(self.times.items()) if self._asks(cut, time, chosen)]

    def _asks(self, cut: int, time: CutTime, chosen: set[int]) -> bool:
        if time.is_bound or time.visits >= MOST_VISITS:
            return False
        if time.mean_s > NEAR * self.best_s and cut not in chosen:
            return False
        return len(time.seconds) < LEAST_ITERATIONS or time.deviation >= DEVIATION


@dataclass(frozen=True)
class Verdict:
    """A planner's choice for one setting, beside the best."""

    planner: str
    setting: Setting
    chosen: int
    best: int
    ratio: float
    """Its time through the best's; what that is at least where the visit was broken off."""
    is_bound: bool
    tolerance: float

    @property
    def is_right(self) -> bool:
        return self.ratio <= 1 + self.tolerance


def standard_error(values: Sequence[float]) -> float:
    """Of the mean, as a share of it; infinite for less than two values."""
    count = len(values)
    if count < 2:
        return math.inf
    mean = math.fsum(values) / count
    squares = math.fsum((each - mean) ** 2 for each in values)
    return math.sqrt(squares / (count - 1) / count) / mean


def representative(cuts: Sequence[int], split: int) -> int:
    """The cut that stands for a split: the last at or before it."""
    return max(cut for cut in cuts if cut <= split)


def tolerance(best: CutTime, chosen: CutTime) -> float:
    """5 %, or two standard deviations of the ratio of both times, at most 10 %."""
    deviation = math.hypot(best.deviation, chosen.deviation)
    return min(MOST_TOLERANCE, max(TOLERANCE, 2 * deviation))


def verdict(setting: Setting, timings: Timings, planner: str) -> Verdict:
    """How a planner did; every cut must have been visited."""
    known = {cut: time for cut, time in timings.times.items() if not time.is_bound}
    best = min(known, key=lambda cut: known[cut].mean_s)
    chosen = timings.chosen(planner)
    first, own = timings.times[best], timings.times[chosen]
    # nothing is forgiven on the word of a visit that was broken off
    allowed = TOLERANCE if own.is_bound else tolerance(first, own)
    return Verdict(planner, setting, chosen, best, own.mean_s / first.mean_s, own.is_bound, allowed)


def read(lines: Iterable[str]) -> dict[Setting, Timings]:
    """What raw lines tell of each setting; a last line that was cut off is left out."""
    found: dict[Setting, Timings] = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record["kind"] == "machine":
            continue
        timings = found.setdefault(Setting(**record["setting"]), Timings())
        _add(timings, record)
    return found


def read_file(path: Path) -> dict[Setting, Timings]:
    """The same of a file; nothing where there is none."""
    return read(path.read_text("utf-8").splitlines()) if path.exists() else {}


def append(path: Path, kind: str, setting: Setting | None = None, **more: Any) -> dict[str, Any]:
    """Add a line to the raw file, on disk before anything goes on."""
    record: dict[str, Any] = {"kind": kind}
    if setting is not None:
        record["setting"] = asdict(setting)
    record |= more
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as raw:
        raw.write(json.dumps(record) + "\n")
    return record


def _add(timings: Timings, record: Mapping[str, Any]) -> None:
    if record["kind"] == "plan":
        timings.situation = situation_from(record["situation"])
        timings.cuts = timings.cuts or tuple(record["cuts"])
    elif record["kind"] == "finished":
        timings.finished = True
        timings.took_s = record["took_s"]
    else:
        time = timings.times.setdefault(record["split"], CutTime())
        time.visits += 1
        if record["at_least_s"] is None:
            time.seconds += record["seconds"]
        else:  # the iterations before the one that was too slow would make the mean too short
            time.at_least_s = max(record["at_least_s"], time.at_least_s or 0.0)


def situation_from(told: Mapping[str, Any]) -> Situation:
    """A situation that was written as JSON."""
    costs: dict[str, Any] | None = told["costs"]
    if costs is not None:
        costs = {name: tuple(v) if isinstance(v, list) else v for name, v in costs.items()}
    return Situation(
        **{
            **told,
            "layer_bytes": tuple(told["layer_bytes"]),
            "load": ServerLoad(**told["load"]),
            "costs": Costs(**costs) if costs is not None else None,
        }
    )
