"""The results of a grid as pictures: heat maps of rules against attacks, and curves with bands.

Colours are those of cividis and of Okabe and Ito ("Color universal design", 2008), which people
with any of the common kinds of colour blindness tell apart; every cell of a heat map also has its
number, every curve its own dashes, and its name beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from garfield.report.drawing import matplotlib
from garfield.report.plots import FAINT, INK, bare
from garfield.report.sweep_results import (
    ACCURACY,
    Setup,
    SweepResults,
    named_values,
    shown_score,
    shown_value,
    values_in_order,
)
from garfield.report.sweep_tables import Layout, heading, panels, score

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 2, 1, 2)), (0, (8, 2)))
_MOST_PICTURES = 40
_MOST_COLUMNS = 3  # of panels with curves
_ROOM_FOR_NAME = 0.075  # of a curve, in inches for each letter
_LETTER = 0.076  # inches that a letter takes
_LINE = 0.19  # inches that a line of text takes


def draw_all(results: SweepResults, directory: Path) -> list[Path]:
    """Draw a heat map and curves for each choice of the settings that panels cannot show."""
    layout = Layout.of(results.setup_names)
    drawn: list[Path] = []
    if layout.down is None:
        return drawn
    pictures: list[tuple[str, Mapping[str, Any], Callable[[], Any]]] = []
    if layout.across is not None:
        for fixed, setups in panels(results.setups, layout.rest):
            pictures.append(("heatmap", fixed, partial(heatmap, setups, layout, fixed)))
    for fixed, setups in panels(results.setups, layout.panels):
        pictures.append(("curves", fixed, partial(curves, setups, layout, fixed)))
    for kind, fixed, draw in pictures[:_MOST_PICTURES]:
        figure = draw()
        if figure is not None:
            path = directory / f"{_file_name(kind, fixed)}.png"
            figure.savefig(path, dpi=130)
            drawn.append(path)
    return drawn


def heatmap(setups: Sequence[Setup], layout: Layout, fixed: Mapping[str, Any]) -> Any:
    """Mean score as colour and number: a panel for each heterogeneity and number of liars."""
    assert layout.down is not None
    assert layout.across is not None
    down, across = (values_in_order(setups, name) for name in (layout.down, layout.across))
    columns = _values(setups, layout.panels_across)
    rows = _values(setups, layout.panels_down)
    longest = max(len(shown_value(value)) for value in down)
    slanted = max(len(shown_value(value)) for value in across)
    panel = max(2.2, 0.95 * len(across))
    width = 1.4 + len(columns) * panel + 0.075 * longest
    height = 1.3 + len(rows) * max(1.3, 0.5 * len(down) + 0.5) + 0.055 * slanted
    figure = matplotlib().figure.Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
    image, shades = None, _Shades(setups)
    for y, row in enumerate(rows):
        for x, column in enumerate(columns):
            here = {**_one(layout.panels_down, row), **_one(layout.panels_across, column)}
            chosen = [each for each in setups if here.items() <= each.varied.items()]
            image = _map(axes[y, x], chosen, (layout.down, down), (layout.across, across), shades)
            axes[y, x].set_title(_lines(named_values(here), panel), fontsize=9, color=INK)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label(_axis(setups), fontsize=9, color=INK)
    _title(figure, f"{_what(setups)} after the last step, {_over_seeds(setups)}", fixed, width)
    return figure


def curves(setups: Sequence[Setup], layout: Layout, fixed: Mapping[str, Any]) -> Any:
    """Mean score over steps, a band of one deviation around it: a panel for each attack."""
    assert layout.down is not None
    known = [setup for setup in setups if setup.curve()]
    if not known:
        return None
    kinds, lines = _values(known, layout.across), values_in_order(known, layout.down)
    looks = {value: _look(i) for i, value in enumerate(lines)}
    columns = min(_MOST_COLUMNS, len(kinds))
    rows = ceil(len(kinds) / columns)
    room = 0.3 + _ROOM_FOR_NAME * max(len(shown_value(value)) for value in lines)
    width = columns * (3.2 + room) + 0.6
    height = rows * max(2.6, 0.6 + _LINE * len(lines)) + 0.7
    figure = matplotlib().figure.Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    ends = []
    for axes, kind in zip(grid.flat, kinds, strict=False):
        here = _one(layout.across, kind)
        chosen = [each for each in known if here.items() <= each.varied.items()]
        found = {each.varied[layout.down]: each.curve() for each in chosen}
        ends.append((axes, _draw_curves(axes, found, looks, heading(known))))
        axes.set_title(named_values(here), fontsize=9, color=INK)
    for axes, found_ends in ends:  # when all panels have one scale
        _name(axes, found_ends, looks)
    for axes in list(grid.flat)[len(kinds) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel(_axis(known), fontsize=9, color=INK)
    _title(figure, f"{_what(known)} over steps, {_over_seeds(known)}", fixed, width)
    return figure


def apart(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for names beside curves that end at these heights: `gap` apart, near them, in range.

    Where there is no room for all, they are spread evenly over the range.
    """
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    if gap * (len(heights) - 1) >= high - low:
        spread = np.linspace(low, high, len(heights)) if len(heights) > 1 else [heights[0]]
        places = dict(zip(order, spread, strict=True))
        return [float(places[i]) for i in range(len(heights))]
    placed: list[float] = []
    for i in order:
        least = low if not placed else placed[-1] + gap
        placed.append(max(least, min(heights[i], high)))
    for k in range(len(placed) - 1, -1, -1):  # what was pushed over the top comes down again
        most = high if k == len(placed) - 1 else placed[k + 1] - gap
        placed[k] = min(placed[k], most)
    places = dict(zip(order, placed, strict=True))
    return [places[i] for i in range(len(heights))]


class _Shades:
    """Colours of a heat map, the brighter the better: accuracies from 0 to 100, others as found."""

    def __init__(self, setups: Sequence[Setup]) -> None:
        means = [setup.mean for setup in setups if setup.mean is not None]
        right = all(setup.metric == ACCURACY for setup in setups)
        self.scale = 100.0 if right else 1.0
        self.low, self.high = (0.0, 100.0) if right else (min(means), max(means))
        self._falling = not all(setup.larger_is_better for setup in setups)

    def colours(self) -> Any:
        name = "cividis_r" if self._falling else "cividis"
        return matplotlib().colormaps[name].with_extremes(bad="#eeeeee")

    def is_dark(self, mean: float) -> bool:
        """Whether what stands on the colour of that mean must be white."""
        share = (self.scale * mean - self.low) / ((self.high - self.low) or 1.0)
        return (1 - share if self._falling else share) < 0.55


def _map(
    axes: Any,
    setups: Sequence[Setup],
    down: tuple[str, list[Any]],
    across: tuple[str, list[Any]],
    shades: _Shades,
) -> Any:
    places = {(s.varied[down[0]], s.varied[across[0]]): s for s in setups}
    means = np.full((len(down[1]), len(across[1])), np.nan)
    for y, row in enumerate(down[1]):
        for x, column in enumerate(across[1]):
            setup = places.get((row, column))
            if setup is None or setup.mean is None:
                text = "–" if setup is None else score(setup)
                axes.text(x, y, text, ha="center", va="center", fontsize=8, color=FAINT)
                continue
            means[y, x] = shades.scale * setup.mean
            spread = shown_score(setup.deviation, setup.metric)
            spread = "" if setup.deviation is None else f"\n± {spread}"
            mark = " ✗" if setup.count("diverged") else ""
            axes.text(
                x, y, f"{shown_score(setup.mean, setup.metric)}{mark}{spread}", ha="center",
                va="center", fontsize=8, color="white" if shades.is_dark(setup.mean) else "black",
            )  # fmt: skip
    image = axes.imshow(
        means, cmap=shades.colours(), vmin=shades.low, vmax=shades.high, aspect="auto"
    )
    slant = {"rotation": 30, "rotation_mode": "anchor", "ha": "right"}
    axes.set_xticks(range(len(across[1])), map(shown_value, across[1]), fontsize=9, **slant)
    axes.set_yticks(range(len(down[1])), map(shown_value, down[1]), fontsize=9)
    axes.tick_params(length=0, colors=INK)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(len(across[1]) - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(len(down[1]) - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    return image


def _draw_curves(
    axes: Any,
    found: Mapping[Any, Sequence[tuple[float, float, float]]],
    looks: Mapping[Any, Mapping[str, Any]],
    metric: str,
) -> dict[Any, tuple[float, float]]:
    """Draw a panel; where each of its curves ends."""
    right = metric == f"{ACCURACY} %"
    scale, low, high = (100.0, 0.0, 100.0) if right else (1.0, -np.inf, np.inf)
    ends = {}
    for value, points in found.items():
        steps, means, spreads = (np.array(each) for each in zip(*points, strict=True))
        edges = [np.clip(scale * (means + side * spreads), low, high) for side in (-1, 1)]
        axes.fill_between(steps, *edges, color=looks[value]["color"], alpha=0.15, linewidth=0)
        axes.plot(steps, scale * means, linewidth=1.8, **looks[value])
        ends[value] = (float(steps[-1]), float(scale * means[-1]))
    if right:
        axes.set_ylim(0, 100)
    axes.set_xlim(left=0)
    axes.set_xlabel("steps", fontsize=9, color=INK)
    axes.tick_params(labelsize=8)
    bare(axes)
    return ends


def _name(
    axes: Any, ends: Mapping[Any, tuple[float, float]], looks: Mapping[Any, Mapping[str, Any]]
) -> None:
    """Write the name of each curve beside its end, none over another."""
    inches = axes.get_figure().get_figheight() / axes.get_subplotspec().get_gridspec().nrows
    bottom, top = axes.get_ylim()
    shares = [(height - bottom) / (top - bottom) for _, height in ends.values()]
    places = apart(shares, _LINE / (inches - 0.9), 0.03, 0.97)
    for (value, end), place in zip(ends.items(), places, strict=True):
        axes.annotate(
            shown_value(value), end, xytext=(1.06, place), textcoords="axes fraction",
            va="center", fontsize=8.5, fontweight="bold", color=looks[value]["color"],
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": looks[value]["color"], "linewidth": 0.7,
                        "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)},
        )  # fmt: skip


def _look(place: int) -> dict[str, Any]:
    dashes = _DASHES[place % len(_DASHES)]
    return {"color": _COLOURS[place % len(_COLOURS)], "linestyle": dashes}


def _what(setups: Sequence[Setup]) -> str:
    return heading(setups).removesuffix(" %").capitalize()


def _axis(setups: Sequence[Setup]) -> str:
    metric = heading(setups)
    return "right on the test set, %" if metric == f"{ACCURACY} %" else f"{metric} on the test set"


def _title(figure: Any, what: str, fixed: Mapping[str, Any], width: float) -> None:
    """A title on as many lines as the picture is narrow."""
    text = f"{what}{' · ' if fixed else ''}{named_values(fixed)}"
    figure.suptitle(_lines(text, 0.8 * width), fontsize=11, fontweight="bold", color=INK)


def _lines(text: str, inches: float) -> str:
    return "\n".join(wrap(text, max(20, int(inches / _LETTER)), break_on_hyphens=False))


def _over_seeds(setups: Sequence[Setup]) -> str:
    seeds = max(len(setup.scores) for setup in setups)
    return f"mean of {seeds} seeds ± deviation" if seeds > 1 else "one seed"


def _values(setups: Sequence[Setup], name: str | None) -> list[Any]:
    return [None] if name is None else values_in_order(setups, name)


def _one(name: str | None, value: Any) -> dict[str, Any]:
    return {} if name is None else {name: value}


def _file_name(kind: str, fixed: Mapping[str, Any]) -> str:
    text = named_values(fixed).replace(" ", ",")
    return re.sub(r"[^\w.+=,-]+", "_", f"{kind}{'-' if text else ''}{text}")[:150].rstrip("_,.")
