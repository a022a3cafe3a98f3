"""What is shown while a grid of runs goes on: redrawn in place on a terminal, else plain lines.

`SweepStatus` takes events and knows how far the grid is; the displays only show it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from garfield.report.live import clock_time
from garfield.report.sweep_results import ACCURACY, CellResult, shown_score


@dataclass
class SweepStatus:
    """How far a grid is. Work is counted in samples; the pace is that of this sweep so far."""

    total: int
    """Cells, those that were complete before included."""
    clock: Callable[[], float]
    done: int = 0
    failed: int = 0
    started_at: float = field(init=False)
    running: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """Name, step and last step of the cell that each process runs."""
    _left: float = 0.0
    _worked: float = 0.0
    _work: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.started_at = self.clock()

    def expect(self, work: Sequence[float]) -> None:
        """Note the work of the cells that are to be run."""
        self._left = float(sum(work))

    def begin(self, process: str, name: str, steps: int, work: float) -> None:
        """Note that a process begins a cell."""
        self.running[process] = (name, 0, steps)
        self._work[process] = work

    def step(self, process: str, step: int) -> None:
        """Note how far a process's cell is."""
        name, _, steps = self.running[process]
        self.running[process] = (name, step, steps)

    def end(self, process: str, *, failed: bool) -> None:
        """Note that a process's cell has ended."""
        del self.running[process]
        work = self._work.pop(process)
        self._left -= work
        self.done += 1
        self.failed += failed
        self._worked += 0.0 if failed else work

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.started_at

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest will take at the pace so far; None before there is one."""
        part = sum(
            self._work[process] * step / steps for process, (_, step, steps) in self.running.items()
        )
        worked = self._worked + part
        return (self._left - part) * self.elapsed_s / worked if worked else None

    def head(self) -> str:
        """How far it is, in a few words."""
        left = "" if self.left_s is None else f", {clock_time(self.left_s)} left"
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done}/{self.total} cells{failed}, {clock_time(self.elapsed_s)}{left}"


class SweepDisplay(Protocol):
    """Shows a grid while it goes on."""

    def __enter__(self) -> SweepDisplay: ...

    def __exit__(self, *_: object) -> None: ...

    def ended(self, result: CellResult) -> None: ...

    def say(self, text: str) -> None: ...


class TerminalSweepDisplay:
    """A display for a terminal: a bar, and a line for each cell that runs."""

    def __init__(self, status: SweepStatus, console: Console) -> None:
        self.status = status
        self._live = Live(
            get_renderable=self.render, console=console, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> TerminalSweepDisplay:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def ended(self, result: CellResult) -> None:
        if not result.ended:
            self.say(line(result))

    def say(self, text: str) -> None:
        self._live.console.print(text, soft_wrap=True)

    def render(self) -> RenderableType:
        """Draw the grid as it is now."""
        status = self.status
        head = Table.grid(padding=(0, 2))
        head.add_row(
            ProgressBar(total=status.total, completed=status.done, width=30), status.head()
        )
        cells = [
            Text(f"  {name}: step {step}/{steps}", style="dim", overflow="ellipsis", no_wrap=True)
            for name, step, steps in status.running.values()
        ]
        return Group(head, *cells)


class LineSweepDisplay:
    """A display for files and pipes: a line for every cell that has ended."""

    def __init__(self, status: SweepStatus, console: Console) -> None:
        self.status, self._console = status, console

    def __enter__(self) -> LineSweepDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ended(self, result: CellResult) -> None:
        self.say(f"{self.status.head()}: {line(result)}")

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)


def sweep_display(status: SweepStatus, console: Console) -> SweepDisplay:
    """The display that fits the console."""
    kind = TerminalSweepDisplay if console.is_terminal else LineSweepDisplay
    return kind(status, console)


def line(result: CellResult) -> str:
    """What came of a cell, in a line."""
    if result.status == "done":
        unit = " %" if result.metric == ACCURACY else f" {result.metric}"
        score = f"{shown_score(result.score, result.metric)}{unit}"
        return f"{result.name}: {score}, {result.wall_s or 0.0:.1f} s"
    return f"{result.name}: {result.status}. {result.error}"
