"""`garfield reproduce`: a figure or table of a paper, made again, its numbers beside ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from garfield.cli.exit_codes import DONE, REFUSED
from garfield.cli.shared import AsJson, WholeNumber, console, print_json, print_note

if TYPE_CHECKING:
    from rich.table import Table

    from garfield.report.recipes import Recipe


def reproduce(
    recipe: Annotated[
        str | None,
        Parameter(help="The number of a figure or table, as 3.5, or the name of a recipe."),
    ] = None,
    /,
    *,
    every: Annotated[
        bool, Parameter(name="--list", help="List what can be reproduced.", show_default=False)
    ] = False,
    quick: Annotated[
        bool,
        Parameter(help="A small form, most in under a minute: to see it work.", show_default=False),
    ] = False,
    show: Annotated[
        bool, Parameter(help="Run nothing: show what is kept.", show_default=False)
    ] = False,
    fresh: Annotated[bool, Parameter(help="Run again what is kept.", show_default=False)] = False,
    out: Annotated[
        Path | None,
        Parameter(metavar="DIR", help="Where results are kept. (results/reproduce/NAME)"),
    ] = None,
    threads: Annotated[
        WholeNumber | None,
        Parameter(help="For simulated trainings. (all cores)", validator=validators.Number(gte=1)),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Make a figure or table of a paper again, and set its numbers beside ours.

    Runs what its recipe says, at this machine's scale, and ends with the source's numbers beside
    ours, a picture, and why they differ. What is done is kept: an interrupted run goes on where it
    was. Recipes that measure time run benchmarks of the repository, and need a clone of it.
    """
    from garfield.launch.reproduce import Reproduction, recipes_folder
    from garfield.report.recipes import all_recipes, find_recipe, recipe_table

    folder = recipes_folder()
    if every or recipe is None:
        recipes = all_recipes(folder)
        if as_json:
            print_json([_about(each) for each in recipes])
        else:
            console().print(_overview(recipes))
        return DONE if every else REFUSED
    wanted = find_recipe(folder, recipe)
    name = f"{wanted.name}-quick" if quick else wanted.name
    kept_in = out or Path("results") / "reproduce" / name
    threads = threads or os.cpu_count() or 1
    work = Reproduction(wanted, kept_in, quick=quick, fresh=fresh, threads=threads)
    if not show:
        minutes = "" if quick or not wanted.minutes else f" About {wanted.minutes:g} minutes."
        print_note(f"{wanted.title}: {wanted.source}.{minutes}")
        work.run(print_note)
    found = work.result(print_note)
    if as_json:
        print_json(found)
        return DONE
    screen = console()
    if wanted.rows:
        screen.print(recipe_table(wanted, kept_in))
    if wanted.differs:
        screen.print(f"Why they differ: {wanted.differs}", soft_wrap=True)
    for picture in found["pictures"]:
        screen.print(f"Picture: {kept_in / picture}", soft_wrap=True)
    return DONE


def _overview(recipes: list[Recipe]) -> Table:
    from garfield.report.plain_tables import plain_table

    table = plain_table("recipe", "reproduces", "title", "by", "minutes", right=1)
    for each in recipes:
        about = _about(each)
        minutes = f"{each.minutes:g}" if each.steps or each.runs else "–"
        table.add_row(each.name, each.source, each.title, about["by"], minutes)
    return table


def _about(recipe: Recipe) -> dict[str, Any]:
    ways = ["simulation"] * (recipe.runs is not None) + ["benchmarks"] * bool(recipe.steps)
    return {
        "recipe": recipe.name, "source": recipe.source, "title": recipe.title,
        "by": " and ".join(ways) or "nothing here", "minutes": recipe.minutes,
    }  # fmt: skip
