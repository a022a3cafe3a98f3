"""The pictures of a recipe: lines, bars or stacks of what was found, the source's beside.

Colours are those of Okabe and Ito, told apart by everybody, and every line has dashes or a marker
of its own as well. The legend stands beside the picture, never on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import Any

from garfield.report.drawing import matplotlib
from garfield.report.plots import FAINT, INK, bare
from garfield.report.recipes import Picture, Recipe, entries

Entries = Sequence[Mapping[str, Any]]
Series = Mapping[Any, Entries]
"""Entries of each line or colour."""

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#000000", "#8a8a8a")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--", "-.", ":")
_MARK = "#d55e00"
_MOST_MARKERS = 25
"""Points of a line that are marked; more of them would be a string of pearls."""
_MOST_TICKS = 10
"""Places on a logarithmic axis that are all named."""
_ACROSS = 3
"""Panels side by side, at most."""


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


def _figure(recipe: Recipe, picture: Picture, found: Entries) -> Any:
    panels = _grouped(found, picture.panels)
    across = min(len(panels), _ACROSS)
    down = ceil(len(panels) / across)
    wide = picture.kind != "lines" and len({each[picture.x] for each in found}) > 12
    width = 11 if wide else (7.5, 10.5, 13)[across - 1]
    figure = matplotlib().figure.Figure(figsize=(width, 1 + 3.6 * down), layout="constrained")
    parts = figure.subplots(down, across, sharey=True, squeeze=False).flat
    series = list(dict.fromkeys(each.get(picture.by) if picture.by else "" for each in found))
    for axes, (name, listed) in zip(parts, panels.items(), strict=False):
        of = {key: value for key, value in _grouped(listed, picture.by).items() if key in series}
        _panel(axes, recipe, picture, {key: of.get(key, ()) for key in series})
        axes.set_title(fill(str(name or ""), 40), fontsize=10, color=INK)
    for axes in list(parts)[len(panels) :]:
        axes.remove()
    first = figure.axes[0]
    handles, labels = first.get_legend_handles_labels()
    if len(series) > 1 or picture.paper:
        names = [fill(str(label), 26) for label in labels]
        figure.legend(handles, names, loc="outside right center", frameon=False, fontsize=9)
    title = fill(f"{recipe.title} (after {recipe.source})", 9 * int(width))
    figure.suptitle(title, fontsize=11, fontweight="bold", color=INK)
    return figure


def _grouped(found: Entries, by: str | None) -> dict[Any, Entries]:
    names = dict.fromkeys(each.get(by) if by else "" for each in found)
    return {name: [each for each in found if not by or each.get(by) == name] for name in names}


def _panel(axes: Any, recipe: Recipe, picture: Picture, of: Series) -> None:
    """One part of the picture, with all that is common to lines and bars."""
    {"lines": _lines, "bars": _bars, "stacks": _stacks}[picture.kind](axes, picture, of)
    if picture.paper:
        xs, ys = zip(*picture.paper, strict=True)
        axes.plot(xs, ys, color=FAINT, linestyle="--", marker="s", label=recipe.source)
    for name, height in (picture.marks or {}).items():
        axes.axhline(height, color=_MARK, linewidth=1.1, linestyle="--")
        axes.annotate(
            name, (1, height), xycoords=("axes fraction", "data"), ha="right", va="bottom",
            fontsize=8, color=_MARK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )  # fmt: skip
    for axis in picture.log:
        getattr(axes, f"set_{axis}scale")("log")
        scale = getattr(axes, f"{axis}axis")
        if axis == "y":  # 0.02, 0.05, 0.1: a decade of its own may be all there is
            scale.set_major_locator(matplotlib().ticker.LogLocator(subs=(1, 2, 5)))
        scale.set_major_formatter(lambda at, _: _written(at))
        axes.minorticks_off()
    places = sorted({each[picture.x] for listed in of.values() for each in listed})
    if "x" in picture.log and len(places) <= _MOST_TICKS:
        axes.set_xticks(places, [_written(x) for x in places])
    if "y" not in picture.log:
        highest = max(axes.dataLim.ymax, *(picture.marks or {}).values(), 0)
        axes.set_ylim(picture.bottom, picture.top or 1.04 * highest)
        if all(isinstance(each[picture.y], int) for listed in of.values() for each in listed):
            axes.locator_params("y", integer=True)
    axes.set_xlabel(picture.x_label or picture.x, color=INK)
    if axes.get_subplotspec().is_first_col():
        axes.set_ylabel(picture.y_label or picture.y, color=INK)
    bare(axes)


def _written(number: float) -> str:
    """As people write it: 1,756,426 and 0.05."""
    return f"{number:,.0f}" if number >= 1e4 else f"{number:g}"


def _lines(axes: Any, picture: Picture, of: Series) -> None:
    many = max(map(len, of.values())) > _MOST_MARKERS
    looks = zip(cycle(_COLOURS), cycle(_MARKERS), cycle(_DASHES), strict=False)
    for number, ((name, listed), (colour, marker, dashes)) in enumerate(
        zip(of.items(), looks, strict=False)
    ):
        xs, ys = [each[picture.x] for each in listed], [each[picture.y] for each in listed]
        # the first ones are wider: of two lines in the same place both are seen
        width = 1.6 + 0.35 * (len(of) - 1 - number)
        style = {"color": colour, "linewidth": width, "label": name, "linestyle": dashes}
        style |= {} if many else {"marker": marker, "markersize": 5}
        axes.plot(xs, ys, **style)
        off = [each.get(picture.error or "") or 0.0 for each in listed]
        if not any(off):
            continue
        if many:
            low, high = zip(*((y - e, y + e) for y, e in zip(ys, off, strict=True)), strict=True)
            axes.fill_between(xs, low, high, color=colour, alpha=0.18, linewidth=0)
        else:
            axes.errorbar(xs, ys, off, color=colour, linestyle="", capsize=3, elinewidth=1.2)
    xs = [each[picture.x] for listed in of.values() for each in listed]
    if all(isinstance(x, int) for x in xs) and "x" not in picture.log:
        axes.locator_params("x", integer=True)


def _bars(axes: Any, picture: Picture, of: Series) -> None:
    places, width = _places(picture, of), 0.8 / len(of)
    for number, (colour, (name, listed)) in enumerate(
        zip(cycle(_COLOURS), of.items(), strict=False)
    ):
        shift = (number - (len(of) - 1) / 2) * width
        at = [places.index(each[picture.x]) + shift for each in listed]
        heights = [each[picture.y] for each in listed]
        off = [each.get(picture.error or "") or 0.0 for each in listed]
        axes.bar(
            at, heights, width=0.92 * width, color=colour, label=name,
            yerr=off if any(off) else None, error_kw={"elinewidth": 1, "capsize": 2},
        )  # fmt: skip
    _name(axes, places)


def _stacks(axes: Any, picture: Picture, of: Series) -> None:
    places = _places(picture, of)
    floor = dict.fromkeys(places, 0.0)
    for colour, (name, listed) in zip(cycle(_COLOURS), of.items(), strict=False):
        values = {each[picture.x]: each[picture.y] for each in listed}
        axes.bar(
            [places.index(x) for x in values], [*values.values()], width=0.75, color=colour,
            bottom=[floor[x] for x in values], label=name,
        )  # fmt: skip
        for x, height in values.items():
            floor[x] += height
    _name(axes, places)


def _places(picture: Picture, of: Series) -> list[Any]:
    return list(dict.fromkeys(each[picture.x] for listed in of.values() for each in listed))


def _name(axes: Any, places: Sequence[Any]) -> None:
    names = [f"{each:g}" if isinstance(each, int | float) else str(each) for each in places]
    slanted = max(map(len, names)) * len(names) > 60
    names = names if slanted else [fill(name, 12) for name in names]
    axes.set_xticks(range(len(places)), names, rotation=40 if slanted else 0,
                    ha="right" if slanted else "center", fontsize=8 if slanted else 9)  # fmt: skip
