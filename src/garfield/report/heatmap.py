"""The table of errors as a picture: attacks down, rules across, colour on a log scale."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from garfield.core.errors import ConfigError
from garfield.core.types import Matrix
from garfield.report.drawing import matplotlib
from garfield.report.findings import shown
from garfield.report.resilience import Resilience

_LOWEST, _HIGHEST = 0.05, 20.0  # beyond, all is equally well and equally bad


def check(path: Path) -> None:
    """Refuse what `draw` could not do, before anything is computed."""
    matplotlib()
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"A picture ends in .png, .svg or .pdf, and {path.name} does not.")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"There is no folder {path.parent} to write {path.name} to.")


def draw(result: Resilience, path: Path) -> None:
    """Write the heat map to a file; its ending says which format."""
    check(path)
    library = matplotlib()
    errors = _errors(result)
    figure = library.figure.Figure(figsize=_size(result), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        np.clip(errors, _LOWEST, _HIGHEST),
        cmap=_colours(),
        norm=library.colors.LogNorm(_LOWEST, _HIGHEST),
        aspect="auto",
    )
    _label(axes, result)
    _annotate(axes, result)
    _explain(figure, axes, image, result)
    figure.savefig(path, dpi=150)


def _errors(result: Resilience) -> Matrix:
    """(attacks, rules); NaN only where n is too small, so that it stays uncoloured."""

    def number(error: float | None) -> float:
        if error is None:
            return math.nan
        return math.inf if math.isnan(error) else error

    columns = [[number(cell.error) for cell in result.of(rule).values()] for rule in result.rules]
    return np.array(columns).T


def _size(result: Resilience) -> tuple[float, float]:
    return 2.6 + 0.62 * len(result.rules), 2.2 + 0.33 * len(result.attacks)


def _colours() -> Any:
    """Blue up to 0.5, through pale yellow at 1, to dark orange: told apart by everybody's eyes."""

    def place(error: float) -> float:
        return math.log(error / _LOWEST) / math.log(_HIGHEST / _LOWEST)

    stops = [
        (0.0, "#08519c"),
        (place(0.25), "#6baed6"),
        (place(0.5), "#c6dbef"),
        (place(0.8), "#fff3b0"),
        (place(1.5), "#fdae61"),
        (place(6.0), "#d1490b"),
        (1.0, "#7f2704"),
    ]
    return (
        matplotlib()
        .colors.LinearSegmentedColormap.from_list("error", stops)
        .with_extremes(bad="#eeeeee")
    )


def _label(axes: Any, result: Resilience) -> None:
    across = {"rotation": 35, "rotation_mode": "anchor", "ha": "left"}
    axes.set_xticks(range(len(result.rules)), result.rules, fontsize=10, **across)
    axes.set_yticks(range(len(result.attacks)), result.attacks, fontsize=10)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)
    # white lines between the cells; a thicker one under "nobody lies"
    axes.set_xticks(np.arange(len(result.rules) - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(len(result.attacks) - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.axhline(0.5, color="white", linewidth=5)
    axes.tick_params(which="minor", length=0)


def _annotate(axes: Any, result: Resilience) -> None:
    for x, rule in enumerate(result.rules):
        for y, cell in enumerate(result.of(rule).values()):
            if cell.error is None:
                text, colour = cell.note.removeprefix("needs ") if y == 0 else "", "#777777"
            else:
                text = shown(cell.error)
                colour = "#222222" if 0.12 < cell.error < 2.5 else "white"
            axes.text(x, y, text, ha="center", va="center", fontsize=9, color=colour)


def _explain(figure: Any, axes: Any, image: Any, result: Resilience) -> None:
    bar = figure.colorbar(image, ax=axes, pad=0.015, fraction=0.03, extend="both")
    ticks = [0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20]
    bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks], fontsize=8)
    bar.minorticks_off()
    bar.outline.set_visible(False)
    bar.set_label("|aggregate − honest mean| / |honest mean|", fontsize=9)
    axes.set_title(
        f"How far {result.f} liars among {result.n} move each rule "
        f"(gradients of {result.d:,} parameters; 1 = not moving at all)",
        fontsize=12,
        fontweight="bold",
        pad=14,
    )
