"""Reproduce a figure or table: ``python -m benchmarks.recipe 5.11``; without a number, list all.

Runs the recipe's commands (recipes/*.toml), keeps their results in results/recipes/NAME, draws
its pictures there, and ends with the paper's numbers beside ours. ``--show`` runs nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from rich.table import Table

from garfield.core.errors import GarfieldError, RunError
from garfield.report.console import console
from garfield.report.plain_tables import plain_table
from garfield.report.recipe_pictures import draw_recipe
from garfield.report.recipes import Recipe, find_recipe, read_recipe, recipe_table

ROOT = Path(__file__).parents[1]
RECIPES, RESULTS = ROOT / "recipes", ROOT / "results"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipe")
    parser.add_argument("recipe", nargs="?", help="its name, or the number of figure or table")
    parser.add_argument("--show", action="store_true", help="run nothing: show what is there")
    parser.add_argument("--quick", action="store_true", help="hand --quick to every benchmark")
    given = parser.parse_args(arguments)
    try:
        if given.recipe is None:
            console().print(_overview())
            return 0
        recipe = find_recipe(RECIPES, given.recipe)
        folder = RESULTS / "recipes" / recipe.name
        if not given.show:
            _run(recipe, folder, ["--quick"] if given.quick else [])
        _show(recipe, folder)
    except GarfieldError as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    return 0


def _run(recipe: Recipe, folder: Path, more: list[str]) -> None:
    """Run its commands one after the other, and keep what they leave."""
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{recipe.title}: {recipe.source}. About {recipe.minutes:g} minutes.", flush=True)
    for words in recipe.steps:
        print("$ python -m", *words, *more, flush=True)
        done = subprocess.run([sys.executable, "-m", *words, *more], cwd=ROOT, check=False)
        if done.returncode:
            raise RunError(f"{' '.join(words)} ended with {done.returncode}.")
        for name in recipe.results:
            if name in words:
                shutil.copyfile(RESULTS / f"{name}.json", folder / f"{name}.json")


def _show(recipe: Recipe, folder: Path) -> None:
    out = console()
    if recipe.rows:
        out.print(recipe_table(recipe, folder))
    if recipe.differs:
        out.print(f"What differs: {recipe.differs}", soft_wrap=True)
    for path in draw_recipe(recipe, folder, folder) if folder.is_dir() else []:
        out.print(f"Picture: {os.path.relpath(path)}", soft_wrap=True)


def _overview() -> Table:
    table = plain_table("recipe", "reproduces", "title", "minutes", right=1)
    for path in sorted(RECIPES.glob("*.toml")):
        recipe = read_recipe(path)
        minutes = f"{recipe.minutes:g}" if recipe.steps else "–"
        table.add_row(recipe.name, recipe.source, recipe.title, minutes)
    return table


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
