"""What the commands share: the --json option, the two consoles, lists of names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from garfield.core.files import as_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")
]

_WIDTH_OF_A_FILE = 160


def console() -> Console:
    """Standard output; wide where it is no terminal, so that tables stay whole."""
    from rich.console import Console

    out = Console(highlight=False)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out = Console(highlight=False, width=_WIDTH_OF_A_FILE)
    return out


def progress() -> Progress:
    """A bar on standard error, gone when done: standard output holds results only."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    err = Console(stderr=True)
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)


def print_json(value: Any) -> None:
    """Print a value as it would stand in a file of JSON."""
    typer.echo(as_json(value, indent=2))


def names(texts: list[str]) -> list[str]:
    """Names given one by one or with commas between: commas inside brackets are parameters."""
    found, depth = [""], 0
    for char in ",".join(texts):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            found.append("")
        else:
            found[-1] += char
    return list(dict.fromkeys(name.strip() for name in found if name.strip()))
