"""What came of a grid of runs: results of cells, setups over seeds, and what tuning chose.

Pure: results go in, means and choices come out. `sweep_tables` and `sweep_pictures` show them.
A run whose model diverged is a result, and counts as an accuracy of 0. Runs may be judged by
another metric than accuracy, which may be better the smaller it is; such a run that diverged has
no score, and counts in no mean.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

ACCURACY = "accuracy"
FINAL, BEST = "final", "best"
SEED = "seed"

Status: TypeAlias = Literal["done", "diverged", "failed", "impossible", "waiting"]
"""Waiting: not begun, or not ended, when the sweep was."""


@dataclass(frozen=True)
class Tuning:
    """Which settings are tuned for each setup, and by what."""

    names: tuple[str, ...] = ()
    on: str = FINAL
    """Whether runs are judged by their final or their best score on the test set."""
    worst_over: str | None = None
    """A setting, such as worker_attack, over whose values one choice is made, by the worst."""

    def about(self) -> str:
        """On what a choice was made, in a sentence; empty if nothing is tuned."""
        if not self.names:
            return ""
        worst = f", the worst over {self.worst_over} counting" if self.worst_over else ""
        return (
            f"{', '.join(self.names)}: chosen for each setup by the mean over seeds of the "
            f"{self.on} score on the test set itself{worst}; so scores are a little better than "
            "they would be on data that no choice was made on."
        )


@dataclass(frozen=True)
class CellResult:
    """What came of one run."""

    name: str
    varied: Mapping[str, Any]
    seed: Any
    """A whole number, unless that is why the cell is impossible."""
    status: Status
    score: float | None = None
    """After the last step; None if the run failed. An accuracy is 0 if the model diverged."""
    best_score: float | None = None
    loss: float | None = None
    steps: int | None = None
    wall_s: float | None = None
    """Seconds that the cell took from its start to its end, writing included."""
    train_s: float | None = None
    """Seconds of that which it trained, evaluation left out."""
    error: str = ""
    """Why it failed, diverged, or is impossible."""
    directory: str = ""
    curve: Sequence[Sequence[float]] = ()
    """(step, score) of each evaluation."""
    metric: str = ACCURACY
    """What scores are."""
    larger_is_better: bool = True

    @property
    def ended(self) -> bool:
        """Whether it trained to its end, or until it diverged."""
        return self.status in ("done", "diverged")

    def goodness(self, on: str = FINAL) -> float:
        """What a choice is made by, larger for the better whatever the metric."""
        value = self.best_score if on == BEST and self.status == "done" else self.score
        if value is None:
            return -math.inf
        return value if self.larger_is_better else -value


@dataclass(frozen=True)
class Setup:
    """The runs of all seeds that are otherwise alike, at the tuned values that were chosen."""

    varied: Mapping[str, Any]
    """What distinguishes it from other setups."""
    runs: Sequence[CellResult]
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """What was chosen for it."""

    @cached_property
    def scores(self) -> list[float]:
        """Final scores of the runs that have one."""
        return [run.score for run in self.runs if run.ended and run.score is not None]

    @property
    def metric(self) -> str:
        """What its scores are."""
        return next((run.metric for run in self.runs if run.ended), ACCURACY)

    @property
    def larger_is_better(self) -> bool:
        return next((run.larger_is_better for run in self.runs if run.ended), True)

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.scores) if self.scores else None

    @property
    def goodness(self) -> float:
        """The mean score, larger for the better whatever the metric."""
        if self.mean is None:
            return -math.inf
        return self.mean if self.larger_is_better else -self.mean

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds, of a sample; None with fewer than two."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None

    @property
    def best(self) -> float | None:
        """The mean over seeds of each run's best score."""
        found = [each.best_score for each in self.runs if each.best_score is not None]
        return statistics.fmean(found) if found else None

    def count(self, status: Status) -> int:
        """How many of its runs ended so."""
        return sum(run.status == status for run in self.runs)

    def curve(self) -> list[tuple[float, float, float]]:
        """(step, mean, deviation) at the steps that all runs were evaluated at.

        A run that diverged has an accuracy of 0 from its last evaluation on.
        """
        runs = [run for run in self.runs if run.ended and (run.curve or run.score is not None)]
        longest: Sequence[Sequence[float]] = max((run.curve for run in runs), key=len, default=())
        found = []
        for step, _ in longest:
            heights = [_height(run, step) for run in runs]
            known = [height for height in heights if height is not None]
            if len(known) == len(runs):
                spread = statistics.stdev(known) if len(known) > 1 else 0.0
                found.append((float(step), statistics.fmean(known), spread))
        return found


@dataclass(frozen=True)
class SweepResults:
    """All results of a grid, in the order of its cells."""

    results: Sequence[CellResult]
    varied: Sequence[str]
    """Names of the settings that cells differ in, seed and tuned ones included."""
    tuning: Tuning = field(default_factory=Tuning)

    @property
    def setup_names(self) -> list[str]:
        """Names of the settings that setups differ in."""
        return [name for name in self.varied if name != SEED and name not in self.tuning.names]

    @cached_property
    def setups(self) -> list[Setup]:
        """Every setup at what was chosen for it, in the order of the grid."""
        chosen = self.choices
        return [
            Setup(dict(key), candidates[chosen[key]], dict(chosen[key]))
            for key, candidates in self._candidates.items()
        ]

    @cached_property
    def choices(self) -> dict[_Pairs, _Pairs]:
        """For each setup, the tuned values that were chosen, both as pairs of name and value."""
        alike: dict[_Pairs, list[_Pairs]] = {}
        for key in self._candidates:
            shared = tuple(pair for pair in key if pair[0] != self.tuning.worst_over)
            alike.setdefault(shared, []).append(key)
        found: dict[_Pairs, _Pairs] = {}
        for keys in alike.values():
            offered = dict.fromkeys(each for key in keys for each in self._candidates[key])
            scores = {
                each: min(self._score(self._candidates[key].get(each, ())) for key in keys)
                for each in offered
            }
            best = max(offered, key=lambda each: scores[each])  # the first of equals
            found |= dict.fromkeys(keys, best)
        return found

    def is_chosen(self, result: CellResult) -> bool:
        """Whether it ran at the tuned values that were chosen for its setup."""
        setup, tuned = self._split(result)
        return self.choices.get(setup) == tuned

    @cached_property
    def _candidates(self) -> dict[_Pairs, dict[_Pairs, list[CellResult]]]:
        found: dict[_Pairs, dict[_Pairs, list[CellResult]]] = {}
        for result in self.results:
            if result.status != "impossible":
                setup, tuned = self._split(result)
                found.setdefault(setup, {}).setdefault(tuned, []).append(result)
        return found

    def _split(self, result: CellResult) -> tuple[_Pairs, _Pairs]:
        names = self.setup_names
        return (
            tuple((name, _hashable(result.varied[name])) for name in names),
            tuple((name, _hashable(result.varied[name])) for name in self.tuning.names),
        )

    def _score(self, runs: Sequence[CellResult]) -> float:
        """The mean over seeds; one whose run failed makes it worse than any that ran."""
        if not runs or not all(run.ended for run in runs):
            return -math.inf
        return statistics.fmean(run.goodness(self.tuning.on) for run in runs)


_Pairs: TypeAlias = tuple[tuple[str, Any], ...]


def named_values(varied: Mapping[str, Any]) -> str:
    """Settings and their values, in a line."""
    return " ".join(f"{name}={shown_value(value)}" for name, value in varied.items())


def shown_score(score: float | None, metric: str) -> str:
    """A score as tables show it: accuracies in percent, without the sign."""
    if score is None:
        return "–"
    return f"{100 * score:.1f}" if metric == ACCURACY else f"{score:.4g}"


def shown_value(value: Any) -> str:
    """A value as tables and names show it."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def values_in_order(setups: Iterable[Setup], name: str) -> list[Any]:
    """The values of a setting that setups have, in the order of the grid."""
    return list(dict.fromkeys(setup.varied[name] for setup in setups))


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _height(run: CellResult, step: float) -> float | None:
    for at, score in run.curve:
        if at == step:
            return score
    last = run.curve[-1][0] if run.curve else -1
    return run.score if run.status == "diverged" and step > last else None
