"""Throughput of real processes as more of them join, and as more of them may lie.

The questions are those of the thesis's Figures 3.8 (batches a second against n_w),
3.9 (communication without servers against n and d) and 3.10 (updates a second
against f_w, with n_w fixed, and against f_ps, with n_ps = 3 f_ps + 1). All nodes are
processes of this host and nobody lies. Beside each number stands its ratio to
vanilla with as many workers, in the same rounds; a setting's fastest round counts.

Cores are few here, and all workers share them: what scales with n_w is the work, so
batches a second stay level at best. What the ratio shows is what robustness adds.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.throughput import Contender
from garfield.apps.settings import Settings
from garfield.core.errors import MissingDependency

QUESTION = "How does throughput scale with n_w, f_w and f_ps?"
RESULTS = Path(__file__).parents[1] / "results"
DATA = {"mnist_cnn": "fashion-small", "cifarnet": "cifar10"}
N_W, N_W_QUICK = (5, 8, 11), (5, 7)
MOST_F_PS = 2
WARM_UP = 2
PEERS = 6  # nodes without servers where the model's size is what varies


@dataclass(frozen=True)
class Point:
    """One setting, and where it stands in a figure."""

    figure: str
    line: str
    x: int
    settings: Settings

    @property
    def vanilla(self) -> Settings:
        """With as many workers."""
        base = self.settings
        return _settings(
            "vanilla", base.learning.model, base.nodes.workers, base.steps, base.samples.data_dir
        )


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--scaling-models", nargs="+", choices=list(DATA), help="(both)")
    group.add_argument("--scaling-data-dir", help="where cifar10 lies, as for garfield train")
    group.add_argument("--scaling-rounds", type=int, default=2, help="(2)")
    group.add_argument("--scaling-figures", nargs="+", choices=list(_AXES), help="(all)")
    group.add_argument("--n-w", type=int, nargs="+", help=f"({' '.join(map(str, N_W))})")


def run(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """A table and a picture per figure; all numbers are returned."""
    models = options.scaling_models or (["mnist_cnn"] if options.quick else list(DATA))
    wanted = options.scaling_figures or list(_AXES)
    points = [p for p in _points(options, models) if p.figure.partition(" ")[0] in wanted]
    contenders = {s: Contender(s.app, "memory", s) for p in points for s in (p.settings, p.vanilla)}
    _take_turns(contenders, 1 if options.quick else options.scaling_rounds, console)
    for figure in dict.fromkeys(point.figure for point in points):
        chosen = [point for point in points if point.figure == figure]
        console.print(_table(figure, chosen, contenders))
        try:
            console.print(f"Picture: {_draw(figure, chosen, contenders)}")
        except MissingDependency as missing:
            console.print(str(missing))
    return [_result(point, contenders) for point in points]


def _points(options: argparse.Namespace, models: Sequence[str]) -> Iterator[Point]:
    steps = WARM_UP + (6 if options.quick else 15)
    counts = options.n_w or (N_W_QUICK if options.quick else N_W)
    more = (steps, options.scaling_data_dir)
    for model in models:
        for app in ("vanilla", "crash-tolerant", "ssmw", "msmw", "decentralized"):
            for n in counts:
                settings = _settings(app, model, n, *more)
                yield Point(f"3.8 {model}", app, n, settings)
                if app in ("vanilla", "decentralized"):
                    yield Point(f"3.9a {model}", app, n, settings)
        for app in ("vanilla", "decentralized"):
            yield Point("3.9b", app, _size(model), _settings(app, model, PEERS, *more))
        n = max(counts)
        for app in ("ssmw", "msmw"):
            for f in range((n - 3) // 2 + 1):  # what Multi-Krum bears
                yield Point(f"3.10a {model}", app, f, _settings(app, model, n, *more, f_w=f))
        for f in range(MOST_F_PS + 1):
            servers = {"servers": 3 * f + 1, "f_servers": f}
            settings = _settings("msmw", model, min(counts), *more, **servers)
            yield Point(f"3.10b {model}", "msmw", f, settings)


def _settings(
    app: str, model: str, n: int, steps: int, data_dir: str | None, f_w: int = 1, **servers: int
) -> Settings:
    robust = app in ("ssmw", "msmw", "decentralized")
    several = {"servers": 3, "f_servers": 1} if app in ("msmw", "crash-tolerant") else {}
    return Settings.of(
        app=app, gar="multi-krum", model=model, data=DATA[model], data_dir=data_dir, workers=n,
        steps=steps, f_workers=f_w if robust else 0, learning_rate=0.01, evaluate_every=0,
        test_images=500, **{**several, **servers},
    ).check()  # fmt: skip


def _size(model: str) -> int:
    from garfield.models import MODELS

    return MODELS[model].parameters or 0


def _take_turns(contenders: dict[Settings, Contender], rounds: int, console: Console) -> None:
    order = random.Random(0)
    turns = list(contenders.values())
    for number in range(rounds):
        order.shuffle(turns)
        for done, contender in enumerate(turns):
            s = contender.settings
            where = (
                f"{s.app}, {s.learning.model}, {s.nodes.workers} workers, {s.nodes.servers} servers"
            )
            with console.status(f"round {number + 1}, {done + 1} of {len(turns)}: {where}"):
                contender.run(WARM_UP)


def _result(point: Point, contenders: dict[Settings, Contender]) -> dict[str, Any]:
    mine, vanilla = contenders[point.settings], contenders[point.vanilla]
    s = point.settings
    return {
        "figure": point.figure, "app": point.line, "x": point.x, "n_w": s.nodes.workers,
        "f_w": s.numbers.f_w, "n_ps": s.numbers.n_ps, "f_ps": s.numbers.f_ps,
        "model": s.learning.model,
        "updates_per_s": 1 / mine.step_s, "batches_per_s": s.nodes.workers / mine.step_s,
        "communication_s": mine.breakdown["communication_s"],
        "ratio_to_vanilla": mine.step_s / vanilla.step_s,
    }  # fmt: skip


_AXES = {  # of each figure: what x is, what y is, and which number that is
    "3.8": ("n_w", "batches/s", "batches_per_s"),
    "3.9a": ("n", "communication, s a step", "communication_s"),
    "3.9b": ("d", "communication, s a step", "communication_s"),
    "3.10a": ("f_w", "updates/s", "updates_per_s"),
    "3.10b": ("f_ps", "updates/s", "updates_per_s"),
}


def _table(figure: str, points: Sequence[Point], contenders: dict[Settings, Contender]) -> Table:
    x, y, number = _AXES[figure.partition(" ")[0]]
    title = f"As in Figure {figure}, n_w = {_range(points)}"
    table = Table("application", title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in (x, y, "times vanilla's step"):
        table.add_column(heading, justify="right")
    for point in points:
        found = _result(point, contenders)
        ratio = f"{found['ratio_to_vanilla']:.2f}"
        table.add_row(point.line, f"{point.x:,}", f"{found[number]:.3g}", ratio)
    return table


def _range(points: Sequence[Point]) -> str:
    return ", ".join(map(str, sorted({point.settings.nodes.workers for point in points})))


def _draw(figure: str, points: Sequence[Point], contenders: dict[Settings, Contender]) -> Path:
    from garfield.report.drawing import matplotlib

    x, y, number = _AXES[figure.partition(" ")[0]]
    drawing = matplotlib().figure.Figure(figsize=(5, 3.5), layout="constrained")
    axes = drawing.subplots()
    for line in dict.fromkeys(point.line for point in points):
        mine = sorted((p for p in points if p.line == line), key=lambda p: p.x)
        heights = [_result(point, contenders)[number] for point in mine]
        axes.plot([point.x for point in mine], heights, marker="o", label=line)
    axes.set(xlabel=x, ylabel=y, title=f"As in Figure {figure}")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend()
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"scaling-{figure.replace(' ', '-')}.png"
    drawing.savefig(path, dpi=120)
    return path
