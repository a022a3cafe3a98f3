"""From a grid to cells that can be run, and those that cannot, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from garfield.apps.settings import Settings
from garfield.core.errors import GarfieldError
from garfield.launch.sweep.grid import Cell, Grid, cells, digest, directory_name
from garfield.launch.training import prepare
from garfield.report.sweep_results import named_values
from garfield.runs.user_files import loaded


@dataclass(frozen=True)
class PlannedCell:
    """A cell that can be run."""

    cell: Cell
    settings: Settings
    key: str
    """The digest of all its settings."""

    @property
    def directory(self) -> str:
        """The name of its run directory."""
        return directory_name(self.cell, self.key)

    @property
    def work(self) -> int:
        """How much there is to compute, for the time left: samples that gradients are made of."""
        s = self.settings
        return s.steps * (s.nodes.workers - s.lasting_liars) * s.learning.batch


@dataclass(frozen=True)
class ImpossibleCell:
    """A cell that cannot be run, and why."""

    cell: Cell
    why: str


@dataclass(frozen=True)
class Plan:
    """Every cell of a grid, in order."""

    grid: Grid
    cells: Sequence[PlannedCell | ImpossibleCell]

    @property
    def possible(self) -> list[PlannedCell]:
        """Cells that can be run."""
        return [each for each in self.cells if isinstance(each, PlannedCell)]

    @property
    def impossible(self) -> list[ImpossibleCell]:
        """Cells that cannot, each with why."""
        return [each for each in self.cells if isinstance(each, ImpossibleCell)]

    def refusal(self, *, skip_impossible: bool) -> list[str]:
        """Why nothing is started, a line a cause; empty if all is well, or may be skipped."""
        lines = [f"every cell: {problem}" for problem in self.grid.problems]
        if lines or not skip_impossible or not self.possible:
            lines += self._causes()
        if not lines:
            return []
        count, total = len(self.impossible), len(self.cells)
        head = f"{count} of {total} cells are impossible; nothing was started."
        if self.grid.problems:
            head = "The grid is wrong; nothing was started."
        elif self.possible:
            head += " --skip-impossible leaves them out."
        return [*lines, head]

    def _causes(self) -> list[str]:
        """Which cells are impossible and why: those that share a cause are told once."""
        sharing: dict[str, list[Cell]] = {}
        for each in self.impossible:
            sharing.setdefault(each.why, []).append(each.cell)
        return [f"{_in_common(cells)}: {why}" for why, cells in sharing.items()]


def _in_common(cells: Sequence[Cell]) -> str:
    """The name of a cell, or what several have in common, and how many they are."""
    first, *others = cells
    if not others:
        return first.name
    alike = {
        name: value
        for name, value in first.varied.items()
        if all(cell.varied[name] == value for cell in others)
    }
    return f"{named_values(alike)} ({len(cells)} cells)".lstrip()


def plan(grid: Grid) -> Plan:
    """Try the settings of every cell: names, bounds, data and their partition."""
    found: list[PlannedCell | ImpossibleCell] = []
    for cell in cells(grid):
        try:
            settings = cell.settings()
            ready = prepare(settings)
            found.append(PlannedCell(cell, ready, digest(settings, _sources(settings))))
        except GarfieldError as problem:
            found.append(ImpossibleCell(cell, str(problem)))
    return Plan(grid, found)


def _sources(settings: Settings) -> list[bytes]:
    """Contents of the user's files that a run depends on: loaded, or named as mine.py:Net is."""
    texts = [value for value in settings.values().values() if isinstance(value, str)]
    named = [Path(text.rpartition(":")[0]) for text in texts if ".py:" in text]
    return [_content(path) for path in (*loaded(), *named) if path.is_file()]


@lru_cache
def _content(path: Path) -> bytes:
    return path.read_bytes()
