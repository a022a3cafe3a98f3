"""What the benchmark of applications found, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich import box
from rich.table import Table

from garfield.report.drawing import matplotlib

Lines = Mapping[str, Mapping[str, Any]]
"""Of each application: a cell of every seed for each attack, its pace, and how many lied."""
COLOURS = ("#8a8a8a", "#d55e00", "#e69f00", "#0072b2", "#56b4e9")  # told apart by everybody
NEVER = float("inf")
LEARNS = 0.1
"""Below the best by no more than this, an application counts as having learnt."""


def legend(workers: int, servers: int, target: float, seeds: int) -> str:
    return (
        f"{workers} workers; where there are several servers, {servers}.\n"
        "liars         workers, and servers, that are declared and lie\n"
        f"accuracy      at the end, mean and deviation of {seeds} seeds; from simulation\n"
        f"to {100 * target:.0f} %       steps until the accuracy first was that, the middle seed, "
        "without attack / under the worst attack\n"
        "updates/s     real processes on this machine, nobody lying\n"
        "slowdown      updates/s of vanilla over its own\n"
        "MB/step       vectors that all nodes received together, without attack\n"
    )


def table(lines: Lines, attacks: Sequence[str], target: float) -> Table:
    """A line per application."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    made.add_column("application")
    made.add_column("liars")
    percent = f"to {100 * target:.0f} %"
    for heading in (*attacks, percent, "updates/s", "slowdown", "MB/step", "gradients/step"):
        made.add_column("no attack" if heading == "none" else heading, justify="right")
    best = max((mean(accuracies(cells[attacks[0]])) for cells in lines.values()), default=0.0)
    vanilla = lines.get("vanilla", {}).get("pace", {}).get("updates_per_s")
    for app, cells in lines.items():
        calm, pace = cells[attacks[0]][0], cells["pace"]["updates_per_s"]
        made.add_row(
            app,
            " + ".join(str(liars) for liars in cells["liars"] if liars),
            *(_accuracy(cells[attack], best) for attack in attacks),
            _to_target(cells, attacks, target),
            f"{pace:.1f}" if pace else "–",
            f"{vanilla / pace:.2f}×" if vanilla and pace else "–",
            f"{calm['bytes_per_step'] / 1e6:.1f}",
            f"{calm['gradients_per_step']:.0f}",
        )
    return made


def draw(lines: Lines, attacks: Sequence[str], path: Path) -> Path:
    """Accuracies by attack, and slowdowns."""
    figure = matplotlib().figure.Figure(figsize=(12, 0.62 * len(lines) + 1.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    rows = range(len(lines))
    height = 0.8 / len(attacks)
    for i, (attack, colour) in enumerate(zip(attacks, COLOURS, strict=False)):
        found = [[100 * each for each in accuracies(cells[attack])] for cells in lines.values()]
        label = "no attack" if attack == "none" else attack
        left.barh(
            [row + i * height for row in rows], [mean(each) for each in found], height,
            color=colour, label=label, xerr=[spread(each) for each in found],
            error_kw={"elinewidth": 0.8, "ecolor": "#333333"},
        )  # fmt: skip
    left.set_yticks([row + 0.4 - height / 2 for row in rows], list(lines))
    left.invert_yaxis()
    left.set_xlim(0, 100)
    left.set_xlabel("right on images never seen, % (simulation)")
    figure.legend(loc="outside upper left", ncols=len(attacks), frameon=False)
    _slowdowns(right, lines, height, len(attacks))
    figure.savefig(path, dpi=130)
    return path


def _slowdowns(axes: Any, lines: Lines, height: float, bars: int) -> None:
    paces = {app: cells["pace"]["updates_per_s"] for app, cells in lines.items()}
    known = [pace for pace in paces.values() if pace]
    base = paces.get("vanilla") or max(known, default=1.0)
    for row, (app, pace) in enumerate(paces.items()):
        if not pace:
            continue
        at = row + (bars - 1) * height / 2
        axes.barh(at, base / pace, 0.8, color="#2a9d63" if app != "vanilla" else "#8a8a8a")
        axes.text(base / pace, at, f" {base / pace:.2f}×  ({pace:.1f} updates/s)", va="center")
    axes.set_xlim(0, 1.7 * max((base / pace for pace in known), default=1.0))
    axes.set_xlabel("slowdown against vanilla (real processes, nobody lying)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def accuracies(cells: Sequence[Mapping[str, Any]]) -> list[float]:
    """One of each seed; 0 for a run that ended before it was measured."""
    return [cell["accuracy"] or 0.0 for cell in cells]


def spread(values: Sequence[float]) -> float:
    """The standard deviation over seeds; 0 where there is one."""
    return stdev(values) if len(values) > 1 else 0.0


def _accuracy(cells: Sequence[Mapping[str, Any]], best: float) -> str:
    found = accuracies(cells)
    style = "green" if mean(found) > best - LEARNS else "bold red"
    ended = sum(cell["ended"] is not None for cell in cells)
    mark = f" ({ended} ended)" if ended else ""
    return f"[{style}]{100 * mean(found):.1f} ± {100 * spread(found):.1f}{mark}[/]"


def _to_target(cells: Mapping[str, Any], attacks: Sequence[str], target: float) -> str:
    steps = [_middle([_reached(cell["curve"], target) for cell in cells[name]]) for name in attacks]
    worst = max(steps[1:])
    return " / ".join("never" if at == NEVER else f"{at:.0f}" for at in (steps[0], worst))


def _reached(curve: Sequence[tuple[int, float]], target: float) -> float:
    return next((at for at, height in curve if height >= target), NEVER)


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
