"""`garfield data`: which data sets there are, and how to get them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from garfield.cli.exit_codes import FAILED
from garfield.cli.shared import AsJson, console, print_error, print_json, print_line

app = App(name="data", help="List data sets, and fetch them.")

DataDirectory = Annotated[
    Path | None,
    Parameter(metavar="DIR", help="Where data lie. ($GARFIELD_DATA, else ~/.cache/garfield)"),
]


@app.command(name="list")
def list_sets(*, to: DataDirectory = None, as_json: AsJson = False) -> None:
    """List the data sets, and say which are here."""
    from garfield.data import DATASETS
    from garfield.report.plain_tables import plain_table

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "about": source.about,
            "image": list(source.image or ()),
            "here": _here(name, to),
        }
        for name, source in DATASETS.items()
    ]
    if as_json:
        print_json(rows)
        return
    table = plain_table("data set", "what it holds", "image", "here")
    for row in rows:
        shape = "×".join(map(str, row["image"]))
        here = "yes" if row["here"] else f"no: garfield data fetch {row['name']}"
        table.add_row(row["name"], row["about"], shape, here)
    console().print(table)


@app.command()
def fetch(
    name: Annotated[str, Parameter(help="Which one: mnist, fashion, cifar10.")],
    /,
    *,
    to: DataDirectory = None,
) -> int | None:
    """Download a data set from where it is published; what arrives is checked."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

    from garfield.core.errors import InputError
    from garfield.data.download import fetch

    err = console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar:

        def advance(file: str, done: int, size: int) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=size)
            bar.update(tasks[file], completed=done)

        try:
            root = fetch(name, to, progress=advance)
        except InputError as problem:
            print_error(str(problem))
            return FAILED
    print_line(f"{name} is in {root}/.")
    return None


def _here(name: str, to: Path | None) -> bool:
    """Whether it can be loaded: its files are there, and whole."""
    from garfield.core.errors import InputError
    from garfield.data import load

    try:
        load(name, to)
    except InputError:
        return False
    return True
