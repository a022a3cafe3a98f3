"""Recipes: which commands make a figure or table of a paper, and its numbers beside ours.

A recipe is a TOML file in `recipes/`, named after what it reproduces:

    title = "Features inside Swift's proxy, and beside it"
    source = "thesis, Table 5.1"
    minutes = 5                                     # on two quiet cores
    steps = [["benchmarks", "split_in_proxy"]]      # words behind `python -m`
    differs = "GPUs; …"                             # what cannot be had here, in a sentence

    [[rows]]                                        # of the table: the paper's number and ours
    what = "ResNet-18 in the proxy, s"
    paper = 348
    from = "split_in_proxy.requests"                # a list in results/split_in_proxy.json
    where = { model = "resnet18", way = "in the proxy", requests = 1 }
    value = "seconds"

    [[pictures]]                                    # of the same lists
    name = "…"
    from = "split_in_proxy.requests"
    x = "model"
    y = "seconds"
    by = "way"

A benchmark's results are kept beside the recipe's own pictures, so that another recipe that
runs the same benchmark otherwise does not change them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from rich.table import Table

from garfield.core.config import read_toml
from garfield.core.errors import ConfigError, UnknownName
from garfield.report.plain_tables import plain_table

Part = TypeVar("Part")


@dataclass(frozen=True)
class Row:
    """A number of the paper, and where ours is found."""

    what: str
    paper: float | str
    source: str = ""
    """FILE.LIST: a list of a benchmark's results. None of ours without one."""
    where: Mapping[str, Any] | None = None
    """What the entry must hold; of a list, one of it."""
    value: str = ""
    """Which of its numbers."""
    over: Mapping[str, Any] | None = None
    """What the entry must hold whose number it is divided by: the rest as in `where`."""
    ours: str = ""
    """Said in the place of our number, where there is none."""


@dataclass(frozen=True)
class Picture:
    """A picture of one list."""

    name: str
    source: str
    x: str
    y: str
    by: str | None = None
    """A line or a colour for each of its values."""
    where: Mapping[str, Any] | None = None
    kind: str = "lines"
    """lines, bars, or stacks."""
    x_label: str = ""
    y_label: str = ""
    log: str = ""
    """Axes that are logarithmic: x, y or xy."""
    paper: tuple[tuple[float, float], ...] = ()
    """Points of the paper to draw beside."""
    marks: Mapping[str, float] | None = None
    """Heights to mark with a line and a name."""


@dataclass(frozen=True)
class Recipe:
    """All of a file."""

    name: str
    title: str
    source: str
    steps: tuple[tuple[str, ...], ...]
    """Commands, as words behind `python -m`."""
    minutes: float
    """What all steps take on two quiet cores, about."""
    differs: str = ""
    """In what it is not the paper's, or cannot be had here."""
    rows: tuple[Row, ...] = ()
    pictures: tuple[Picture, ...] = ()

    @property
    def results(self) -> list[str]:
        """Names of the results files that rows and pictures read."""
        sources = [row.source for row in self.rows] + [each.source for each in self.pictures]
        return list(dict.fromkeys(source.partition(".")[0] for source in sources if source))


def read_recipe(path: Path) -> Recipe:
    """The recipe of a file; ConfigError for what is none."""
    told = read_toml(path)
    rows = tuple(_made(Row, each, path) for each in told.pop("rows", []))
    pictures = tuple(_made(Picture, each, path) for each in told.pop("pictures", []))
    steps = tuple(tuple(map(str, words)) for words in told.pop("steps", []))
    whole = {**told, "name": path.stem, "rows": rows, "pictures": pictures, "steps": steps}
    return _made(Recipe, whole, path, rename=False)


def find_recipe(folder: Path, wanted: str) -> Recipe:
    """The recipe of that name, or of the figure or table of that number."""
    names = sorted(path.stem for path in folder.glob("*.toml"))
    found = [name for name in names if wanted == name or wanted in name.split("-")[1:]]
    if len(found) != 1:
        which = f"names {', '.join(found)}: say which" if found else "is no recipe"
        raise ConfigError(f"{wanted} {which}. There are: {', '.join(names)}.")
    return read_recipe(folder / f"{found[0]}.toml")


def entries(folder: Path, source: str, where: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Entries of a list in a results file that hold what they must; none if it is not there."""
    name, _, key = source.partition(".")
    try:
        found = json.loads((folder / f"{name}.json").read_text("utf-8"))["results"]
    except OSError:
        return []
    listed = found[key] if key else found
    wanted = (where or {}).items()
    return [each for each in listed if all(_fits(each.get(n), value) for n, value in wanted)]


def _fits(found: object, wanted: object) -> bool:
    return found in wanted if isinstance(wanted, list) else found == wanted


def ours_of(row: Row, folder: Path) -> float | str:
    """Our number, of results in that folder."""
    number = _number(row, folder, row.where) if row.source else None
    if number is not None and row.over is not None:
        below = _number(row, folder, {**(row.where or {}), **row.over})
        number = number / below if below else None
    return number if number is not None else row.ours or "–"


def _number(row: Row, folder: Path, where: Mapping[str, Any] | None) -> float | None:
    found = entries(folder, row.source, where)
    if len(found) > 1:
        raise ConfigError(f"{row.what}: {len(found)} entries of {row.source} fit; say more.")
    value = found[0].get(row.value) if found else None
    return None if value is None else float(value)


def recipe_table(recipe: Recipe, folder: Path) -> Table:
    """The paper's numbers, and ours."""
    table = plain_table(recipe.source, "there", "here", right=2)
    for row in recipe.rows:
        table.add_row(row.what, _cell(row.paper), _cell(ours_of(row, folder)))
    return table


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}"


def _made(kind: type[Part], told: Mapping[str, Any], path: Path, *, rename: bool = True) -> Part:
    """A part of a recipe; what it does not know is refused with the nearest name."""
    given = {"source" if rename and name == "from" else name: v for name, v in told.items()}
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise UnknownName(f"known in {path.name}", name, known)
    try:
        return kind(**given)
    except TypeError as problem:
        raise ConfigError(f"{path.name}: {problem}.") from None
