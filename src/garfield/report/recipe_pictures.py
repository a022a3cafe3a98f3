"""The pictures of a recipe: lines, bars or stacks of what a benchmark left, the paper's beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from garfield.report.drawing import matplotlib
from garfield.report.plots import FAINT, INK, bare
from garfield.report.recipes import Picture, Recipe, entries

_COLOURS = ("#2563a8", "#e0912f", "#2a9d63", "#c9302c", "#7b4fa3", "#8a8a8a")
_MARK = "#c9302c"
_MOST_MARKERS = 25
"""Points of a line that are marked; more of them would be a string of pearls."""


def draw_recipe(recipe: Recipe, results: Path, folder: Path) -> list[Path]:
    """Draw all pictures for which there are results; their files."""
    drawn = []
    for picture in recipe.pictures:
        found = entries(results, picture.source, picture.where)
        found = [each for each in found if each.get(picture.y) is not None]
        if not found:
            continue
        path = folder / f"{picture.name}.png"
        _figure(recipe, picture, found).savefig(path, dpi=120)
        drawn.append(path)
    return drawn


def _figure(recipe: Recipe, picture: Picture, found: Sequence[Mapping[str, Any]]) -> Any:
    places = list(dict.fromkeys(each[picture.x] for each in found))
    wide = picture.kind != "lines" and len(places) > 12
    figure = matplotlib().figure.Figure(figsize=(11 if wide else 7.5, 4.6), layout="constrained")
    axes = figure.subplots()
    series = list(dict.fromkeys(each.get(picture.by) if picture.by else "" for each in found))
    of = {
        name: {each[picture.x]: each[picture.y] for each in found if _in(each, picture, name)}
        for name in series
    }
    draw = {"lines": _lines, "bars": _bars, "stacks": _stacks}[picture.kind]
    draw(axes, places, of)
    if picture.paper:
        xs, ys = zip(*picture.paper, strict=True)
        axes.plot(xs, ys, color=FAINT, linestyle="--", marker="s", label=recipe.source)
    for name, height in (picture.marks or {}).items():
        axes.axhline(height, color=_MARK, linewidth=1.1, linestyle="--")
        axes.annotate(
            name, (1, height), xycoords=("axes fraction", "data"), ha="right", va="bottom",
            fontsize=8, color=_MARK,
        )  # fmt: skip
    for axis in picture.log:
        getattr(axes, f"set_{axis}scale")("log")
        getattr(axes, f"{axis}axis").set_major_formatter("{x:g}")
        axes.minorticks_off()
    if "y" not in picture.log:
        axes.set_ylim(0, 1.04 * axes.dataLim.ymax)
        if all(isinstance(each[picture.y], int) for each in found):
            axes.locator_params("y", integer=True)
    axes.set_xlabel(picture.x_label or picture.x, color=INK)
    axes.set_ylabel(picture.y_label or picture.y, color=INK)
    bare(axes)
    if len(series) > 1 or picture.paper:
        axes.legend(frameon=False, fontsize=9)
    figure.suptitle(
        f"{recipe.title} (after {recipe.source})", fontsize=11, fontweight="bold", color=INK
    )
    return figure


def _in(entry: Mapping[str, Any], picture: Picture, name: object) -> bool:
    return picture.by is None or entry.get(picture.by) == name


def _lines(axes: Any, places: Sequence[Any], of: Mapping[Any, Mapping[Any, float]]) -> None:
    marker = "o" if max(map(len, of.values())) <= _MOST_MARKERS else ""
    for number, (colour, (name, values)) in enumerate(zip(_COLOURS, of.items(), strict=False)):
        # the first ones are wider: of two lines in the same place both are seen
        width = 2 + 0.8 * (len(of) - 1 - number)
        style = {"color": colour, "linewidth": width, "marker": marker, "label": name}
        axes.plot([*values], [*values.values()], **style)


def _bars(axes: Any, places: Sequence[Any], of: Mapping[Any, Mapping[Any, float]]) -> None:
    width = 0.8 / len(of)
    for number, (colour, (name, values)) in enumerate(zip(_COLOURS, of.items(), strict=False)):
        at = [places.index(x) + (number - (len(of) - 1) / 2) * width for x in values]
        axes.bar(at, [*values.values()], width=0.92 * width, color=colour, label=name)
    _name(axes, places)


def _stacks(axes: Any, places: Sequence[Any], of: Mapping[Any, Mapping[Any, float]]) -> None:
    floor = dict.fromkeys(places, 0.0)
    for colour, (name, values) in zip(_COLOURS, of.items(), strict=False):
        at = [places.index(x) for x in values]
        axes.bar(
            at, [*values.values()], bottom=[floor[x] for x in values], width=0.75, color=colour,
            label=name,
        )  # fmt: skip
        for x, height in values.items():
            floor[x] += height
    _name(axes, places)


def _name(axes: Any, places: Sequence[Any]) -> None:
    names = [f"{each:g}" if isinstance(each, int | float) else str(each) for each in places]
    long = max(map(len, names)) > 6 and len(names) > 6
    axes.set_xticks(range(len(places)), names, rotation=60 if long else 0,
                    ha="right" if long else "center", fontsize=8 if long else 9)  # fmt: skip
