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

Simulated trainings need no benchmark: `[runs]` lists them (`recipe_runs.py`), and rows and pictures
read what they found as `runs.final` and `runs.curve`. A benchmark that runs twice with different
options names its results, as in `{ run = ["benchmarks", "scaling", …], as = "workers" }`.

A benchmark's results are kept beside the recipe's own pictures, so that another recipe that
runs the same benchmark otherwise does not change them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from rich.table import Table

from garfield.core.config import read_toml
from garfield.core.errors import ConfigError, UnknownName
from garfield.report.plain_tables import plain_table
from garfield.report.recipe_runs import Runs

Part = TypeVar("Part")

RUNS = "runs"
"""The results file of simulated trainings."""


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
    minus: Mapping[str, Any] | None = None
    """What the entry must hold whose number is taken from it."""
    deviation: str = ""
    """Which of its numbers says how far seeds differ, if one does."""
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
    error: str | None = None
    """The number that says how far each value may be off."""
    panels: str | None = None
    """A part of the picture for each of its values."""
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
    bottom: float = 0
    """The lower end of the y axis."""
    top: float | None = None
    """The upper end of the y axis; else a little above what is highest."""


@dataclass(frozen=True)
class Step:
    """A command, as words behind `python -m`."""

    words: tuple[str, ...]
    name: str
    """What its results are called here; the benchmark's own name unless said otherwise."""

    @property
    def benchmark(self) -> str:
        return self.words[1]


@dataclass(frozen=True)
class Recipe:
    """All of a file."""

    name: str
    title: str
    source: str
    minutes: float
    """What all of it takes on two quiet cores, about."""
    steps: tuple[Step, ...] = ()
    quick_steps: tuple[Step, ...] | None = None
    """What --quick runs in their place; else the same steps, told to be quick themselves."""
    runs: Runs | None = None
    differs: str = ""
    """In what it is not the paper's, or cannot be had here."""
    rows: tuple[Row, ...] = ()
    pictures: tuple[Picture, ...] = ()

    @property
    def results(self) -> list[str]:
        """Names of the results files that rows and pictures read."""
        sources = [row.source for row in self.rows] + [each.source for each in self.pictures]
        parts = [part for source in sources if source for part in source.split("+")]
        return list(dict.fromkeys(part.partition(".")[0] for part in parts))

    def commands(self, *, quick: bool) -> tuple[Step, ...]:
        """What is to be run beside simulated trainings."""
        if not quick:
            return self.steps
        if self.quick_steps is not None:
            return self.quick_steps
        return tuple(Step((*step.words, "--quick"), step.name) for step in self.steps)


def read_recipe(path: Path) -> Recipe:
    """The recipe of a file; ConfigError for what is none."""
    told = read_toml(path)
    rows = tuple(_made(Row, each, path) for each in told.pop("rows", []))
    pictures = tuple(_made(Picture, each, path) for each in told.pop("pictures", []))
    whole = {**told, "name": path.stem, "rows": rows, "pictures": pictures}
    for name in ("steps", "quick_steps"):
        if name in whole:
            whole[name] = tuple(_step(each, path) for each in whole[name])
    if RUNS in whole:
        whole[RUNS] = _made(Runs, whole[RUNS], path, rename=False)
    return _made(Recipe, whole, path, rename=False)


def all_recipes(folder: Path) -> list[Recipe]:
    """Every recipe of a folder, figures and tables in the order of their numbers."""
    return sorted(map(read_recipe, folder.glob("*.toml")), key=lambda each: _order(each.name))


def _order(name: str) -> tuple[bool, list[tuple[int, str]]]:
    """What has a number comes first, in the order of numbers: 5.10 after 5.9."""
    kind, _, number = name.partition("-")
    parts = number.split(".")
    numbered = all(part.isdigit() for part in parts)
    key = [(int(part), kind) for part in parts] if numbered else [(0, name)]
    return not numbered, key


def _step(told: Sequence[str] | Mapping[str, Any], path: Path) -> Step:
    """The command of a list of words, or of a table that names its results too."""
    words = told.get("run", ()) if isinstance(told, Mapping) else told
    if len(words) < 2:
        raise ConfigError(f"{path.name}: a step is words behind `python -m`, got {told}.")
    name = told.get("as", words[1]) if isinstance(told, Mapping) else words[1]
    return Step(tuple(map(str, words)), name)


def find_recipe(folder: Path, wanted: str) -> Recipe:
    """The recipe of that name, or of the figure or table of that number."""
    names = sorted((path.stem for path in folder.glob("*.toml")), key=_order)
    found = [name for name in names if wanted == name]
    found = found or [name for name in names if wanted in name.split("-")]
    if len(found) > 1:
        raise ConfigError(f"{wanted} names {', '.join(found)}: say which.")
    if not found:
        raise UnknownName("a recipe", wanted, names)
    return read_recipe(folder / f"{found[0]}.toml")


def entries(folder: Path, source: str, where: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Entries of a list in a results file that hold what they must; none if it is not there.

    Of several lists, with + between their names, those of all.
    """
    listed = [each for part in source.split("+") for each in _listed(folder, part)]
    wanted = (where or {}).items()
    return [each for each in listed if all(_fits(each.get(n), value) for n, value in wanted)]


def _listed(folder: Path, source: str) -> list[Mapping[str, Any]]:
    name, _, key = source.partition(".")
    try:
        found = json.loads((folder / f"{name}.json").read_text("utf-8"))["results"]
    except OSError:
        return []
    return list(found.get(key, ()) if key else found)


def _fits(found: object, wanted: object) -> bool:
    return found in wanted if isinstance(wanted, list) else found == wanted


def ours_of(row: Row, folder: Path) -> float | str:
    """Our number, of results in that folder."""
    number = _number(row, folder, row.where) if row.source else None
    if number is not None and row.over is not None:
        below = _number(row, folder, {**(row.where or {}), **row.over})
        number = number / below if below else None
    if number is not None and row.minus is not None:
        other = _number(row, folder, {**(row.where or {}), **row.minus})
        number = None if other is None else number - other
    return number if number is not None else row.ours or "–"


def _number(
    row: Row, folder: Path, where: Mapping[str, Any] | None, value: str = ""
) -> float | None:
    found = entries(folder, row.source, where)
    if len(found) > 1:
        raise ConfigError(f"{row.what}: {len(found)} entries of {row.source} fit; say more.")
    number = found[0].get(value or row.value) if found else None
    return None if number is None else float(number)


def compared(recipe: Recipe, folder: Path) -> list[dict[str, Any]]:
    """The source's numbers and ours, as a file or a script has them."""
    return [
        {"what": row.what, "there": row.paper, "here": ours_of(row, folder),
         "deviation": _deviation(row, folder)}
        for row in recipe.rows
    ]  # fmt: skip


def recipe_table(recipe: Recipe, folder: Path) -> Table:
    """The source's numbers, and ours."""
    table = plain_table(recipe.source, "there", "here", right=2)
    for line in compared(recipe, folder):
        spread = line["deviation"]
        here = _cell(line["here"]) + (f" ± {spread:.2g}" if spread else "")
        table.add_row(line["what"], _cell(line["there"]), here)
    return table


def _deviation(row: Row, folder: Path) -> float | None:
    if not row.deviation:
        return None
    return _number(row, folder, row.where, row.deviation)


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return (f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}").replace("-", "−")


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
