"""The simulated trainings of a recipe: which cells there are, and what their seeds make together.

    [runs]
    seeds = 3                                     # 0, 1, 2
    settings = { model = "mnist_cnn", workers = 11, steps = 200 }     # of `garfield train`
    quick = { model = "digits_mlp", data = "digits", steps = 40 }     # laid over them by --quick
    quick_seeds = 1
    target = 80                                   # accuracy in %, steps to which are told
    quick_target = 90

    [runs.lines]                                  # one line of a picture each
    vanilla = { app = "vanilla" }
    msmw = { app = "msmw", servers = 3 }

    [runs.panels]                                 # one part of a picture each; may be left out
    random = { worker_attack = "random" }

    [runs.points]                                 # places on the x axis; may be left out
    4 = { byzantine_workers = 4 }

There is a cell for every line in every panel at every point, with every seed. What a cell is
given by its line counts more than what comes from its point, its panel, and `settings`, in that
order. Two lists are made of them: `runs.final`, an entry for each line, panel and point, and
`runs.curve`, one for each evaluation of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, product
from statistics import fmean, stdev
from typing import Any

Values = Mapping[str, Any]
"""Settings by their flat names."""
Named = Mapping[str, Values]


@dataclass(frozen=True)
class Cell:
    """One training: where it stands, and its settings by flat names."""

    line: str
    panel: str
    point: float | str | None
    seed: int
    values: Values

    @property
    def name(self) -> str:
        """For people: whatever tells it from its neighbours."""
        point = "" if self.point is None else f"{self.point}"
        return ", ".join(each for each in (self.panel, self.line, point) if each)

    @property
    def place(self) -> tuple[str, str, float | str | None]:
        return (self.panel, self.line, self.point)


@dataclass(frozen=True)
class Runs:
    """All trainings of a recipe, in their full and their quick form."""

    lines: Named
    settings: Values = field(default_factory=dict)
    panels: Named = field(default_factory=lambda: {"": {}})
    points: Named = field(default_factory=dict)
    seeds: int = 3
    target: float | None = None
    quick: Values = field(default_factory=dict)
    quick_seeds: int = 1
    quick_target: float | None = None

    def cells(self, *, quick: bool) -> list[Cell]:
        """Every training; all of one seed first, so that what is there is a table."""
        shared = {**self.settings, **(self.quick if quick else {})}
        points: list[tuple[Any, Values]] = [(_place(x), told) for x, told in self.points.items()]
        return [
            Cell(line, panel, x, seed, {**shared, **of_panel, **at, **mine, "seed": seed})
            for seed in range(self.quick_seeds if quick else self.seeds)
            for (panel, of_panel), (line, mine), (x, at) in product(
                self.panels.items(), self.lines.items(), points or [(None, {})]
            )
        ]

    def target_of(self, *, quick: bool) -> float | None:
        """The accuracy in % that counts as arrived."""
        return self.quick_target if quick else self.target


@dataclass(frozen=True)
class Trained:
    """What came of a cell."""

    curve: Sequence[tuple[int, float]]
    """Steps, and the share of the test set that was right after them."""
    ended: str | None
    """Why it ended early, if it did: diverged, say."""
    bytes_per_step: float
    gradients_per_step: float
    seconds: float

    @property
    def accuracy(self) -> float:
        """At the end; of a run that broke, what its last model was worth."""
        return self.curve[-1][1] if self.curve else 0.0

    def steps_to(self, share: float) -> int | None:
        """When so much was right first."""
        return next((step for step, height in self.curve if height >= share), None)


Found = Sequence[tuple[Cell, Trained]]


def finals(found: Found, target: float | None = None) -> list[dict[str, Any]]:
    """An entry for each line, panel and point: mean and deviation over the seeds, in percent."""
    return [_final(cells, target) for cells in _by_place(found)]


def curves(found: Found) -> list[dict[str, Any]]:
    """An entry for each evaluation of these. A run that broke stays at what it was worth last."""
    made = []
    every = {step for _, trained in found for step, _ in trained.curve}
    for cells in _by_place(found):
        own = {step for _, trained in cells for step, _ in trained.curve}
        later = {step for step in every if step > max(own, default=0)}
        begun = max((trained.curve[0][0] for _, trained in cells if trained.curve), default=0)
        for step in sorted(step for step in own | later if step >= begun):
            heights = [100 * _at(trained.curve, step) for _, trained in cells]
            made.append({**_where(cells[0][0]), "step": step, **_spread(heights)})
    return made


def _by_place(found: Found) -> Iterator[list[tuple[Cell, Trained]]]:
    order = {place: n for n, place in enumerate(dict.fromkeys(cell.place for cell, _ in found))}
    inorder = sorted(found, key=lambda pair: order[pair[0].place])
    for _, cells in groupby(inorder, key=lambda pair: pair[0].place):
        yield list(cells)


def _final(cells: Found, target: float | None) -> dict[str, Any]:
    trained = [each for _, each in cells]
    arrived = [] if target is None else [each.steps_to(target / 100) for each in trained]
    return {
        **_where(cells[0][0]),
        **_spread([100 * each.accuracy for each in trained]),
        "seeds": len(trained),
        "ended_early": sum(each.ended is not None for each in trained),
        "steps_to_target": _mean_of([step for step in arrived if step is not None])
        if None not in arrived
        else None,
        "mb_per_step": fmean(each.bytes_per_step for each in trained) / 1e6,
        "gradients_per_step": fmean(each.gradients_per_step for each in trained),
    }


def _where(cell: Cell) -> dict[str, Any]:
    return {"panel": cell.panel, "line": cell.line, "point": cell.point}


def _spread(values: Sequence[float]) -> dict[str, float]:
    deviation = stdev(values) if len(values) > 1 else 0.0
    return {"accuracy": fmean(values), "deviation": deviation}


def _mean_of(values: Iterable[float]) -> float | None:
    listed = list(values)
    return fmean(listed) if listed else None


def _at(curve: Sequence[tuple[int, float]], step: int) -> float:
    return next((height for at, height in reversed(curve) if at <= step), 0.0)


def _place(name: str) -> float | str:
    """A point's name as a number, if it is one."""
    try:
        return float(name) if "." in name else int(name)
    except ValueError:
        return name
