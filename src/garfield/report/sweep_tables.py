"""The results of a grid as tables: every setup, rules against attacks, and the worst of these.

Scores are mean ± standard deviation over seeds, accuracies in percent. What is too long for a
terminal goes on in the next line; in a pipe or a file tables are as wide as what they hold.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from garfield.report.plain_tables import plain_table
from garfield.report.sweep_results import (
    ACCURACY,
    Setup,
    SweepResults,
    named_values,
    shown_score,
    shown_value,
    values_in_order,
)

RULE = "gar"
ATTACKS = ("worker_attack", "server_attack")
HETEROGENEITY, FAULTS = "partition", ("byzantine_workers", "byzantine_servers", "f_workers")
_WIDTH = 100_000  # of a file: what is no terminal has no edge


@dataclass(frozen=True)
class Layout:
    """Which settings go down and across a table, which tell panels apart, and which the rest."""

    down: str | None
    across: str | None
    panels_across: str | None = None
    panels_down: str | None = None
    rest: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Sequence[str]) -> Layout:
        """Rules against attacks, as far as they differ; else what comes first in the grid."""
        left = list(names)

        def take(*wanted: str) -> str | None:
            found = next((name for name in wanted if name in left), None)
            if found is not None:
                left.remove(found)
            return found

        down, across = take(RULE), take(*ATTACKS)
        beside, below = take(HETEROGENEITY), take(*FAULTS)
        down = down or take(*left) or below or beside
        across = across or take(*left)
        if across is None:
            across = next((name for name in (below, beside) if name not in (None, down)), None)
        beside = beside if beside not in (down, across) else None
        below = below if below not in (down, across) else None
        return cls(down, across, beside, below, tuple(left))

    @property
    def panels(self) -> list[str]:
        """The settings that tell tables apart, in the order of their names in titles."""
        return [name for name in (*self.rest, self.panels_across, self.panels_down) if name]


def sweep_tables(results: SweepResults) -> Iterator[RenderableType]:
    """Every table that there is something for, with a line of words where it needs them."""
    setups = results.setups
    if not setups:
        return
    layout = Layout.of(results.setup_names)
    yield setups_table(results)
    if layout.down and layout.across:
        for fixed, chosen in panels(setups, layout.panels):
            yield cross_table(chosen, layout, named_values(fixed))
    attack = next((name for name in ATTACKS if name in results.setup_names), None)
    if attack:
        yield worst_table(results, attack)
    yield Text(_legend(results), style="dim")


def tables_text(results: SweepResults) -> str:
    """All tables as a plain text, as wide as they are."""
    out = Console(file=io.StringIO(), width=_WIDTH, highlight=False, markup=False)
    for table in sweep_tables(results):
        out.print(table)
        out.print()
    text = out.file.getvalue()  # type: ignore[attr-defined]
    return "".join(f"{line.rstrip()}\n" for line in str(text).rstrip().splitlines())


def panels(
    setups: Sequence[Setup], names: Sequence[str]
) -> Iterator[tuple[Mapping[str, Any], list[Setup]]]:
    """Setups by their values of these settings, in the order of the grid; none of them empty."""
    for choice in product(*(values_in_order(setups, name) for name in names)):
        fixed = dict(zip(names, choice, strict=True))
        chosen = [each for each in setups if fixed.items() <= each.varied.items()]
        if chosen:
            yield fixed, chosen


def setups_table(results: SweepResults) -> Table:
    """A line for each setup."""
    names, tuned = results.setup_names, list(results.tuning.names)
    headings = (heading(results.setups), "best", "runs", "diverged", "failed", "s a run")
    table = plain_table(*names, *tuned, *headings, right=len(headings))
    table.title, table.title_justify = "Every setup", "left"
    for setup in results.setups:
        values = [shown_value(setup.varied[name]) for name in names]
        chosen = [shown_value(setup.tuned[name]) for name in tuned]
        took = [run.wall_s for run in setup.runs if run.ended and run.wall_s is not None]
        table.add_row(
            *map(Text, (*values, *chosen)),
            score(setup), shown_score(setup.best, setup.metric),
            f"{len(setup.scores)} of {len(setup.runs)}",
            str(setup.count("diverged") or "·"), str(setup.count("failed") or "·"),
            f"{sum(took) / len(took):.1f}" if took else "–",
        )  # fmt: skip
    return _whole(table)


def cross_table(setups: Sequence[Setup], layout: Layout, title: str) -> Table:
    """One panel: a setting down, another across, mean ± deviation in each cell."""
    assert layout.down is not None
    assert layout.across is not None
    across = values_in_order(setups, layout.across)
    headings = [shown_value(value) for value in across]
    table = plain_table(f"{layout.down} \\ {layout.across}", *headings, right=len(headings))
    table.title, table.title_justify = _titled(setups, title), "left"
    for value in values_in_order(setups, layout.down):
        row = {s.varied[layout.across]: s for s in setups if s.varied[layout.down] == value}
        cells = [score(row[at]) if at in row else "–" for at in across]
        table.add_row(Text(shown_value(value)), *cells)
    return _whole(table)


def worst_table(results: SweepResults, attack: str) -> Table:
    """For each rule, and whatever else differs, the attack that leaves the worst score."""
    names = [name for name in results.setup_names if name != attack]
    table = plain_table(*names, f"worst {attack}", heading(results.setups), right=1)
    table.title, table.title_justify = "Worst attack per rule", "left"
    for fixed, setup in worst(results, attack):
        values = [Text(shown_value(fixed[name])) for name in names]
        table.add_row(*values, Text(shown_value(setup.varied[attack])), score(setup))
    return _whole(table)


def worst(results: SweepResults, attack: str) -> list[tuple[Mapping[str, Any], Setup]]:
    """The setup with the worst mean score, for each choice of all else than the attack."""
    names = [name for name in results.setup_names if name != attack]
    found = []
    for fixed, setups in panels(results.setups, names):
        known = [setup for setup in setups if setup.mean is not None]
        if known:
            found.append((fixed, min(known, key=lambda setup: setup.goodness)))
    return found


def score(setup: Setup) -> str:
    """Mean ± deviation; a mark says that some of its runs diverged."""
    mark = " ✗" if setup.count("diverged") else ""
    if setup.mean is None:
        return mark.strip() or ("failed" if setup.count("failed") else "–")
    spread = "" if setup.deviation is None else f" ± {shown_score(setup.deviation, setup.metric)}"
    return f"{shown_score(setup.mean, setup.metric)}{spread}{mark}"


def heading(setups: Sequence[Setup]) -> str:
    """What the scores of these setups are, with their unit."""
    metrics = dict.fromkeys(setup.metric for setup in setups if setup.scores) or {ACCURACY: None}
    return ", ".join(f"{name} %" if name == ACCURACY else name for name in metrics)


def _titled(setups: Sequence[Setup], fixed: str) -> str:
    return f"{heading(setups).capitalize()}{': ' if fixed else ''}{fixed}"


def _legend(results: SweepResults) -> str:
    what = heading(results.setups).removesuffix(" %").capitalize()
    parts = [f"{what} on the test set after the last step, mean ± standard deviation over seeds."]
    if any(result.status == "diverged" for result in results.results):
        parts.append("✗: a run diverged, which counts as an accuracy of 0.")
    return " ".join([*parts, results.tuning.about()]).rstrip()


def _whole(table: Table) -> Table:
    """Nothing of it is cut: a cell too long for a terminal goes on in the next line."""
    for column in table.columns:
        column.overflow = "fold"
    return table
