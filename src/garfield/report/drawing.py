"""matplotlib, when there is something to draw: it is an extra, and slow to import.

Colours are those of Okabe and Ito, which people with any kind of colour vision tell apart.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from garfield.core.errors import MissingDependency

INK, FAINT = "#222222", "#8a8a8a"
BLUE, ORANGE, GREEN, VERMILION, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9"
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", SKY, VERMILION, "#000000")
"""For lines that are drawn together, in this order."""
_LETTERS_AN_INCH = 8.8  # of a bold title of 12 points, on average
_GAP = 0.06  # between names of lines, in heights of the axes


def matplotlib() -> Any:
    """The library, its figures, colours, patches and ticks at hand."""
    try:
        import matplotlib as library
        import matplotlib.colors
        import matplotlib.figure
        import matplotlib.patches
        import matplotlib.ticker
    except ImportError:
        raise MissingDependency(
            "Pictures are drawn with matplotlib, which is not installed. "
            "Install it with: pip install 'garfield-ml[plots]'"
        ) from None
    return library


def save_pictures(
    pictures: Mapping[str, Callable[[], Any]], directory: Path, kind: str = "png"
) -> list[Path]:
    """Draw each picture into a file of its name and of a kind, png, svg or pdf; the files.

    Of the kind none, nothing is drawn.
    """
    if kind == "none":
        return []
    drawn = []
    for name, draw in pictures.items():
        draw().savefig(directory / f"{name}.{kind}", dpi=130)
        drawn.append(directory / f"{name}.{kind}")
    return drawn


def entitle(figure: Any, text: str) -> None:
    """Give a figure its title, on as many lines as it needs to be read whole."""
    width = int(_LETTERS_AN_INCH * figure.get_figwidth())
    lines = textwrap.fill(text, width, break_on_hyphens=False)  # names of rules have hyphens
    figure.suptitle(lines, fontsize=12, fontweight="bold", color=INK)


def name_lines(axes: Any) -> None:
    """Write the name of every line beside its end, in its colour, none over another."""
    named = [line for line in axes.get_lines() if not line.get_label().startswith("_")]
    ends = [(line, float(line.get_xdata()[-1]), float(line.get_ydata()[-1])) for line in named]
    low, high = axes.get_ylim()
    height, lowest = (high - low) or 1.0, -1.0
    for line, x, y in sorted(ends, key=lambda end: end[2]):
        lowest = max((y - low) / height, lowest + _GAP)
        axes.annotate(
            line.get_label(), (x, low + lowest * height), xytext=(7, 0),
            textcoords="offset points", va="center", color=line.get_color(), fontsize=9,
            annotation_clip=False,
        )  # fmt: skip
