"""A grid of runs: settings that all share, and lists of those that differ. All of it is pure.

    workers = 10                          # settings as in a run's TOML
    [grid]
    gar = ["median", "mda"]               # one cell for each of these
    seed = [0, 1, 2]                      # times each of those
    [[grid.zip]]                          # lists of one length, gone through together
    byzantine_workers = [1, 2]
    f_workers = [2, 2]
    [tune]
    learning_rate = [0.01, 0.1]           # every cell with each; the best is chosen afterwards

A cell is one run. A *setup* is what its runs with all seeds have in common, and the unit that
tables show; tuned settings are no part of it, as each setup has the best of its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from garfield.apps.own_parts import anchored
from garfield.apps.settings import Settings, all_settings
from garfield.core.bounds import shown
from garfield.core.config import Setting, flattened, known_setting, named
from garfield.core.errors import ConfigError
from garfield.core.files import as_json
from garfield.report.sweep_results import BEST, FINAL, SEED, Tuning, named_values

ZIP = "zip"
MOST_CELLS = 100_000
"""More than that is a slip of the keyboard."""
_SHORT = {"lr": "learning_rate"}
_NOT_CONTENT = ("data_dir",)  # where data lie, not what they are
_NAME_LENGTH = 120  # of a directory, before its digest: file systems allow 255 bytes in all


@dataclass(frozen=True)
class Axis:
    """Settings that change together, and the values they take: one for each of the names."""

    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Grid:
    """What a file of a grid says. Made by `parse`."""

    base: Mapping[str, Any]
    """Settings of every cell, by their flat names."""
    axes: tuple[Axis, ...]
    """What differs, in the order of the file; tuned settings come last."""
    tuning: Tuning = field(default_factory=Tuning)
    problems: tuple[str, ...] = ()
    """What is wrong with the file itself, and so with every cell; left out above."""
    folder: Path = Path()
    """Where paths in it start."""

    @property
    def varied(self) -> tuple[str, ...]:
        """Names of the settings that cells differ in, the tuned ones last."""
        return tuple(name for axis in self.axes for name in axis.names)

    @property
    def size(self) -> int:
        """How many cells there are."""
        return prod(len(axis.values) for axis in self.axes)


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    varied: Mapping[str, Any]
    """What distinguishes it from the others."""
    values: Mapping[str, Any]
    """All that is given of its settings, by flat names."""
    folder: Path = Path()
    """Where paths to the user's files start: `mine.py:Net`."""

    @property
    def name(self) -> str:
        """What distinguishes it, in a line."""
        return named_values(self.varied) or "the only cell"

    def settings(self) -> Settings:
        """Its settings; ConfigError if they are none."""
        return Settings.of(**{**anchored(self.values, self.folder), "simulate": True})


def parse(content: Mapping[str, Any], folder: Path = Path()) -> Grid:
    """The grid that a TOML file in that folder, or a dictionary of the same shape, holds.

    Whatever is wrong with it stands in `problems`, all of it: nothing is raised.
    """
    rest = {key.replace("-", "_"): value for key, value in content.items()}
    found = _Reader()
    grid, tune = found.table(rest, "grid"), found.table(rest, "tune")
    groups = grid.pop(ZIP, [])
    base = found.flat(rest)
    axes = [found.axis("grid", [name], [values]) for name, values in found.flat(grid).items()]
    axes += [found.zipped(group) for group in found.groups(groups)]
    tuning, tuned = found.tuning(tune)
    kept = found.distinct([each for each in (*axes, *tuned) if each is not None], base)
    found.check_simulated(base)
    if prod(len(axis.values) for axis in kept) > MOST_CELLS:
        found.problems.append(
            f"The grid has more than {MOST_CELLS:,} cells. Shorten its lists, or make several."
        )
    return Grid(base, tuple(kept), tuning, tuple(found.problems), folder)


def cells(grid: Grid) -> list[Cell]:
    """Every combination of what differs, the last list going round first."""
    if grid.size > MOST_CELLS:
        return []  # `problems` has it
    found = []
    for choice in product(*(axis.values for axis in grid.axes)):
        pairs = zip(grid.axes, choice, strict=True)
        varied = {
            name: value
            for axis, values in pairs
            for name, value in zip(axis.names, values, strict=True)
        }
        found.append(Cell(varied, {**grid.base, **varied}, grid.folder))
    return found


def digest(settings: Settings, sources: Sequence[bytes] = ()) -> str:
    """What a cell's run depends on, as a short text: all settings, and users' files.

    Where the data lie is no part of it. `sources` are the contents of files whose rules,
    attacks or models the run may use.
    """
    values = {k: v for k, v in settings.values().items() if k not in _NOT_CONTENT}
    text = as_json(dict(sorted(values.items())))
    files = [hashlib.sha256(source).hexdigest() for source in sources]
    return hashlib.sha256("\n".join([text, *files]).encode()).hexdigest()[:12]


def directory_name(cell: Cell, key: str) -> str:
    """What a cell's run directory is called: readable, and unique by the digest at its end."""
    words = re.sub(r"[^\w.+=,-]+", "_", cell.name.replace(" ", ",")).strip("_,.")
    return f"{words[:_NAME_LENGTH]}-{key}"


class _Reader:
    """Reads the parts of a grid, and notes what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._settings = all_settings()
        self._known: dict[str, Setting] = named(self._settings)

    def table(self, content: dict[str, Any], name: str) -> dict[str, Any]:
        """Take a table out of the content; empty if there is none."""
        found = content.pop(name, {})
        if isinstance(found, Mapping):
            return {_SHORT.get(str(key), str(key)): value for key, value in found.items()}
        self.problems.append(f"{name} must be a table, [{name}], got {shown(found)}.")
        return {}

    def flat(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Settings by flat names, without those that are not known; each is told."""
        known = {}
        for key, value in content.items():
            try:
                for name, inner in flattened({key: value}, self._settings).items():
                    known_setting(name, self._known)
                    if name in known:
                        raise ConfigError(f"{name} is given twice: once in a table. Give it once.")
                    known[name] = inner
            except ConfigError as problem:
                self.problems.append(str(problem))
        return known

    def groups(self, given: Any) -> list[dict[str, Any]]:
        """The tables of [[grid.zip]], by flat names."""
        tables = given if isinstance(given, list) else [given]
        if not all(isinstance(each, Mapping) for each in tables):
            self.problems.append(f"zip must be tables of lists, [[grid.zip]], got {shown(given)}.")
            return []
        return [
            self.flat({_SHORT.get(str(k), str(k)): v for k, v in each.items()}) for each in tables
        ]

    def zipped(self, group: Mapping[str, Any]) -> Axis | None:
        """The axis of lists that are gone through together."""
        return self.axis("grid.zip", list(group), list(group.values())) if group else None

    def axis(self, where: str, names: list[str], lists: list[Any]) -> Axis | None:
        """The axis of these settings and their lists; None if it cannot be one."""
        for name, values in zip(names, lists, strict=True):
            if not isinstance(values, (list, tuple)) or not values:
                self.problems.append(
                    f"[{where}] {name} must be a list of at least one value, got {shown(values)}."
                )
                return None
        lengths = {name: len(values) for name, values in zip(names, lists, strict=True)}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name} has {count}" for name, count in lengths.items())
            self.problems.append(f"[[{where}]] needs lists of one length: {counts}.")
            return None
        rows = list(zip(*map(self._typed, names, lists), strict=True))
        twice = [row for at, row in enumerate(rows) if row in rows[:at]]
        if twice:
            what = named_values(dict(zip(names, twice[0], strict=True)))
            self.problems.append(f"[{where}] holds {what} twice. Give each once.")
            return None
        return Axis(tuple(names), tuple(rows))

    def _typed(self, name: str, values: Iterable[Any]) -> list[Any]:
        """Values as the setting wants them; those that it does not are left to its cells."""
        found = []
        for value in values:
            try:
                found.append(self._known[name].typed(value))
            except ConfigError:
                found.append(value)
        return found

    def tuning(self, table: dict[str, Any]) -> tuple[Tuning, list[Axis | None]]:
        """What is tuned and how it is judged, and the axes of it."""
        on, worst = table.pop("on", FINAL), table.pop("worst_over", None)
        if on not in (FINAL, BEST):
            self.problems.append(f"[tune] on must be {FINAL!r} or {BEST!r}, got {shown(on)}.")
            on = FINAL
        axes = [self.axis("tune", [name], [values]) for name, values in self.flat(table).items()]
        names = tuple(axis.names[0] for axis in axes if axis is not None)
        if SEED in names:
            self.problems.append("[tune] cannot hold seed: a choice is made by the mean over them.")
        if worst is not None and worst not in self._known:
            self.problems.append(f"[tune] worst_over must be a setting, got {shown(worst)}.")
            worst = None
        return Tuning(names, on, worst), axes

    def distinct(self, axes: Sequence[Axis], base: dict[str, Any]) -> list[Axis]:
        """The axes whose settings are given by none before; a list beats no value of all cells."""
        kept: list[Axis] = []
        taken = set(base)
        for axis in axes:
            again = sorted(taken.intersection(axis.names))
            for name in again:
                self.problems.append(f"{name} is given twice. Give it once, as a list or a value.")
            if not again:
                taken.update(axis.names)
                kept.append(axis)
        return kept

    def check_simulated(self, base: dict[str, Any]) -> None:
        if base.pop("simulate", True) is not True:
            self.problems.append(
                "Cells of a grid are simulated: leave simulate out, or start runs of processes "
                "one by one with garfield train."
            )
