"""What the aggregation benchmark found, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from garfield import kernels

TARGETS = {
    "median": 2.0, "trimmed-mean": 2.5, "krum": 2.5, "multi-krum": 3.0, "mda": 3.0, "monna": 3.0,
    "bulyan": 3.5, "geometric-median": 3.5, "nnm+multi-krum": 3.5, "centered-clipping": 4.0,
}  # fmt: skip
"""The largest ratio to the mean that we accept at n = 17, f = 3, d = 1e7, with AVX2 or wider."""
QUIET = 0.1
"""The share of the machine that others may take before a verdict is in doubt."""
TARGET_N, TARGET_ROOM = 17, {10_000_000: 1.0, 1_000_000: 1.5}
"""Vectors of a million may take half as much again: the mean then runs half in the cache."""


@dataclass(frozen=True)
class Byzfl:
    """ByzFL's rule of the same name; all empty where it has none."""

    ms: float | None = None
    mean_ms: float | None = None
    """Of torch.mean in its own process, around the rule's calls."""
    others: float = 0.0
    """The share of the machine that other processes took meanwhile."""
    note: str = ""
    """What stands in place of a time: skipped, fails, ..."""
    why: str = ""


@dataclass(frozen=True)
class Line:
    """One rule at one size."""

    rule: str
    ms: float
    ratio: float
    """To torch.mean of the same rows, in the same rounds."""
    list_ratio: float
    """The same, for rows given as a list of n tensors."""
    byzfl: Byzfl
    extra_bytes: int | None
    """Peak of memory beyond the input; None where it cannot be measured."""


@dataclass(frozen=True)
class Cell:
    """All rules at one size."""

    n: int
    f: int
    d: int
    mean_ms: float
    mean_out_ms: float
    """With out=, so without the cost of getting d × 4 bytes from the system."""
    rounds: int
    others: float
    """The share of the machine that other processes took meanwhile."""
    lines: Sequence[Line]

    def byzfl_ratio(self, line: Line) -> float | None:
        """To the fastest mean in ByzFL's process, as ours is to the fastest in ours."""
        means = [other.byzfl.mean_ms for other in self.lines if other.byzfl.mean_ms]
        return line.byzfl.ms / min(means) if line.byzfl.ms else None


def cell_table(cell: Cell) -> Table:
    """One line per rule; below, why some of ByzFL's are missing."""
    gigabytes_per_s = cell.n * cell.d * 4 / cell.mean_ms / 1e6
    table = Table(
        title=f"[bold]n = {cell.n}, f = {cell.f}, d = {short(cell.d)}[/]\n"
        f"{cell.rounds} rounds; torch.mean reads {gigabytes_per_s:.0f} GB/s; {_others(cell)}",
        caption="\n".join(
            f"ByzFL's {line.rule} {line.byzfl.note}: {line.byzfl.why}"
            for line in cell.lines
            if line.byzfl.note
        ),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("rule", no_wrap=True)
    for heading in (
        "ratio",
        "ms",
        "ratio,\nas list",
        "ByzFL\nratio",
        "times\nfaster",
        "extra\nmemory",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    means = {"torch.mean": cell.mean_ms, "torch.mean(out=)": cell.mean_out_ms}
    for name, ms in means.items():
        table.add_row(name, _number(ms / cell.mean_ms), _ms(ms), style="dim")
    for line in cell.lines:
        theirs = cell.byzfl_ratio(line)
        doubt = " ?" if theirs and max(cell.others, line.byzfl.others) > QUIET else ""
        table.add_row(
            line.rule,
            _number(line.ratio),
            _ms(line.ms),
            _number(line.list_ratio),
            line.byzfl.note or _number(theirs) + doubt,
            _number(theirs and theirs / line.ratio) + doubt,
            _number(line.extra_bytes and line.extra_bytes / (4 * cell.d)),
        )
    return table


def targets_table(cells: Sequence[Cell]) -> Table | None:
    """Targets met and missed; None if no size was measured that has targets."""
    judged = [cell for cell in cells if cell.n == TARGET_N and cell.d in TARGET_ROOM]
    if not judged:
        return None
    title = f"Targets at n = {TARGET_N}, f = {judged[0].f}, {kernels.isa()}: ratio to torch.mean"
    table = Table("rule", title=title, title_justify="left", box=box.SIMPLE_HEAD, min_width=60)
    for cell in judged:
        table.add_column(f"d = {short(cell.d)}", justify="right")
        table.add_column("at most", justify="right")
        table.add_column("")
    if any(cell.others > QUIET for cell in judged):
        table.caption = "? Others kept the machine busy: run it again when it is quiet."
        table.caption_justify = "left"
    for rule, target in TARGETS.items():
        marks = [_marks(cell, rule, target * TARGET_ROOM[cell.d]) for cell in judged]
        if all(marks):
            table.add_row(rule, *(part for mark in marks for part in mark))
    return table


def short(d: int) -> str:
    """1000000 as 1e6; a number that is no power of ten, in full."""
    zeros = len(str(d)) - 1
    return f"1e{zeros}" if d == 10**zeros else f"{d:,}"


def _marks(cell: Cell, rule: str, target: float) -> tuple[str, ...]:
    for line in cell.lines:
        if line.rule == rule:
            mark = "[green]met" if line.ratio <= target else "[bold red]missed"
            doubt = " ?" if cell.others > QUIET else ""
            return f"{line.ratio:.2f}", f"{target:g}", mark + doubt
    return ()


def _others(cell: Cell) -> str:
    share = f"others took {cell.others:.0%} of the CPU"
    return f"[yellow]{share}[/]" if cell.others > QUIET else share


def _ms(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:#.3g}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 99.5 else f"{value:.1f}"
