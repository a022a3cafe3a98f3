"""A whole grid of runs, from its file to its tables and pictures.

`read` and `plan` refuse what cannot work. `run_plan` then runs the cells that are not complete,
keeps what they find as they end, and reports however the sweep ends: done, interrupted, or
stopped by a full disk. The same call again goes on with what is left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from garfield.core.config import read_toml
from garfield.core.errors import ConfigError, MissingDependency
from garfield.core.events import Event
from garfield.launch.sweep.cell_process import NO_ROOM
from garfield.launch.sweep.directory import SweepDirectory
from garfield.launch.sweep.grid import parse
from garfield.launch.sweep.planning import Plan, PlannedCell, plan
from garfield.launch.sweep.pool import Job, Pool
from garfield.report.console import console
from garfield.report.sweep_display import SweepDisplay, SweepStatus, sweep_display
from garfield.report.sweep_results import SEED, CellResult, SweepResults
from garfield.report.sweep_rows import rows
from garfield.report.sweep_tables import tables_text
from garfield.runs.interrupts import Interrupts
from garfield.runs.user_files import without_files

_WRITE_EVERY_S = 2.0  # the table of all runs, while cells end


@dataclass(frozen=True)
class SweepOptions:
    """How a grid is run, whatever it holds."""

    processes: int | None = None
    """Cells that run at once, sharing the cores; as many as there are cores if not given."""
    checkpoints: bool = False
    """Keep each cell's last model."""
    pictures: bool = True
    """Draw heat maps and curves at the end."""
    progress: bool = True
    """Show on standard error how far it is."""


@dataclass(frozen=True)
class Sweep:
    """What came of a grid of runs."""

    path: Path
    results: SweepResults
    interrupted: bool = False
    stopped: str = ""
    """Why cells were left that nobody has begun: a full disk."""

    @property
    def failures(self) -> list[CellResult]:
        """The runs that failed. One whose model diverged is a result, and none of them."""
        return [result for result in self.results.results if result.status == "failed"]

    @property
    def unfinished(self) -> int:
        """How many cells were not run to their end, failed ones left out."""
        return sum(result.status == "waiting" for result in self.results.results)

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each run, as the rows of results.csv."""
        return rows(self.results)

    def frame(self) -> Any:
        """The same as a pandas DataFrame."""
        try:
            pandas: Any = import_module("pandas")
        except ImportError:
            raise MissingDependency(
                "A frame is one of pandas, which is not installed. pip install pandas"
            ) from None
        return pandas.DataFrame(self.rows())

    def tables(self) -> str:
        """The tables that `garfield sweep` prints."""
        return tables_text(self.results)


def sweep(
    grid: str | os.PathLike[str] | Mapping[str, Any],
    out: str | os.PathLike[str],
    *,
    skip_impossible: bool = False,
    processes: int | None = None,
    checkpoints: bool = False,
    pictures: bool = True,
    progress: bool = True,
) -> Sweep:
    """Run every cell of a grid, and leave runs, tables and pictures in `out`.

    `grid` is a TOML file, or a dictionary of the same shape: settings, with lists of what differs
    under "grid". Cells that are complete in `out` are not run again. So many `processes` run cells
    side by side, one for each core if not given; with `checkpoints` each keeps its last model;
    without `progress` nothing is shown meanwhile. In a script, call it under
    ``if __name__ == "__main__":``, as its processes import the script for the rules that are
    registered there.

    ConfigError, with the name of each cell that is impossible, before anything starts.
    """
    content = read(grid)
    planned = plan(parse(content, folder(grid)))
    refusal = planned.refusal(skip_impossible=skip_impossible)
    if refusal:
        raise ConfigError("\n".join(refusal))
    options = SweepOptions(processes, checkpoints, pictures, progress)
    return run_plan(planned, content, Path(out), options)


def read(grid: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Any]:
    """What a grid's file holds, without the user's own files that it names, which are loaded."""
    content = grid if isinstance(grid, Mapping) else read_toml(Path(grid))
    return without_files(content, folder(grid))


def folder(grid: str | os.PathLike[str] | Mapping[str, Any]) -> Path:
    """Where paths in a grid start: beside its file, or where the process is."""
    return Path() if isinstance(grid, Mapping) else Path(grid).parent


def run_plan(planned: Plan, content: Mapping[str, Any], out: Path, options: SweepOptions) -> Sweep:
    """Run the cells that are not complete, and report on all of them."""
    with SweepDirectory(out) as directory, Interrupts() as interrupts:
        running = _Running(planned, directory, options)
        with suppress(KeyboardInterrupt), interrupts.allowed():
            running.run(content)
        found = running.results()
        stopped = running.stopped or _report(directory, found, options, interrupts)
    return Sweep(out, found, bool(interrupts.heard), stopped)


class _Running:
    """The cells of a plan, and what is known of each by now."""

    def __init__(self, planned: Plan, directory: SweepDirectory, options: SweepOptions) -> None:
        self._plan, self._directory, self._options = planned, directory, options
        self._found: dict[int, CellResult] = {}
        self._written_at = 0.0
        self._is_full = False
        complete = directory.complete()
        for place, each in enumerate(planned.cells):
            if not isinstance(each, PlannedCell):
                seed = each.cell.values.get(SEED, 0)
                self._found[place] = CellResult(
                    each.cell.name, each.cell.varied, seed, "impossible", error=each.why
                )
            elif each.key in complete:
                before = directory.read(
                    complete[each.key], each.cell.name, each.cell.varied, each.settings.seed
                )
                if before is not None:
                    self._found[place] = before

    @property
    def stopped(self) -> str:
        """Why cells were left that nobody has begun: counted at the end, as some were running."""
        if not self._is_full:
            return ""
        done = sum(result.ended for result in self._found.values())
        return _full(self._directory.path, f"{done} of {len(self._plan.possible)} cells")

    def results(self) -> SweepResults:
        """All cells of the grid in its order; those that nobody has run are waiting."""
        found = [self._found.get(i) or self._waiting(i) for i in range(len(self._plan.cells))]
        grid = self._plan.grid
        return SweepResults(found, grid.varied, grid.tuning)

    def run(self, content: Mapping[str, Any]) -> None:
        """Run what is not complete."""
        try:
            self._directory.open(content)
            left = [i for i in range(len(self._plan.cells)) if i not in self._found]
            if left:
                self._run(left)
        except OSError as problem:
            if problem.errno not in NO_ROOM:
                raise
            self._is_full = True

    def _run(self, left: Sequence[int]) -> None:
        cores = _cores()
        count = min(self._options.processes or cores, len(left))
        threads = max(1, cores // count)
        cells = {i: self._cell(i) for i in left}
        total = len(self._plan.possible)
        status = SweepStatus(total, time.monotonic, done=total - len(left))
        status.expect([cell.work for cell in cells.values()])
        frameworks = sorted({name for c in cells.values() for name in c.settings.frameworks})
        jobs = [self._job(i, cell, threads) for i, cell in cells.items()]
        err = console(stderr=True)
        err.quiet = not self._options.progress
        display = sweep_display(status, err)
        with Pool(count, frameworks) as pool, display:
            for event in pool.run(jobs):
                self._take(event, status, display)
                pool.stopping = self._is_full

    def _job(self, place: int, cell: PlannedCell, threads: int) -> Job:
        about = {"name": cell.cell.name, "digest": cell.key, "varied": cell.cell.varied}
        path = self._directory.runs / cell.directory
        values, keep = cell.settings.values(), self._options.checkpoints
        return Job(place, values, str(path.absolute()), about, keep, threads)

    def _take(self, event: Event, status: SweepStatus, display: SweepDisplay) -> None:
        cell = self._cell(event["cell"])
        process, kind = event["node"], event["event"]
        if kind == "cell-started":
            status.begin(process, cell.cell.name, cell.settings.steps, cell.work)
        elif kind == "cell-step":
            status.step(process, event["step"])
        elif kind == "cell-failed" and not event["room"]:
            status.end(process, failed=False)
            status.done -= 1  # it will be run again
            if not self._is_full:
                self._is_full = True
                display.say(f"The disk of {self._directory.path} is full: no other cell is begun.")
        else:
            failed = kind == "cell-failed"
            result = self._result(cell, event)
            status.end(process, failed=failed)
            self._found[event["cell"]] = result
            display.ended(result)
            self._write_now_and_then()

    def _result(self, cell: PlannedCell, event: Event) -> CellResult:
        directory = f"{self._directory.runs.name}/{cell.directory}"
        found = event.get("found") or {"status": "failed", "error": event["error"]}
        return CellResult(
            cell.cell.name, cell.cell.varied, cell.settings.seed, **found, directory=directory
        )

    def _write_now_and_then(self) -> None:
        if time.monotonic() - self._written_at > _WRITE_EVERY_S:
            self._directory.write_results(self.results())
            self._written_at = time.monotonic()

    def _cell(self, place: int) -> PlannedCell:
        cell = self._plan.cells[place]
        assert isinstance(cell, PlannedCell)  # no other is run
        return cell

    def _waiting(self, place: int) -> CellResult:
        cell = self._cell(place)
        return CellResult(cell.cell.name, cell.cell.varied, cell.settings.seed, "waiting")


def _cores() -> int:
    """Cores that this process may use, as far as the system says."""
    allowed = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if allowed is None else len(allowed(0))


def _full(path: Path, kept: str) -> str:
    return (
        f"The disk of {path} is full. {kept} are complete and kept. Make room, and give the same "
        "command again: it goes on with the rest."
    )


def _report(
    directory: SweepDirectory, results: SweepResults, options: SweepOptions, interrupts: Interrupts
) -> str:
    """Write tables and pictures; why that was impossible, if it was for want of room."""
    try:
        directory.write_all(results, tables_text(results))
        if options.pictures:
            from garfield.report.sweep_pictures import draw_all

            with suppress(KeyboardInterrupt, MissingDependency), interrupts.allowed():
                draw_all(results, directory.path)
    except OSError as problem:
        if problem.errno not in NO_ROOM:
            raise
        done = sum(result.ended for result in results.results)
        return _full(directory.path, f"{done} cells")
    return ""
