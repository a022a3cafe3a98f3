"""Recipes: that each can be read and run, and that their tables hold what was found."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.__main__ import _parser
from garfield.core.errors import ConfigError, UnknownName
from garfield.report.recipes import Row, find_recipe, ours_of, read_recipe

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_calls_benchmarks_with_options_that_they_know(path):
    recipe = read_recipe(path)
    ran = set()
    for module, name, *words in recipe.steps:
        assert module == "benchmarks"
        _parser(name, import_module(f"benchmarks.{name}")).parse_args(words)
        ran.add(name)
    assert set(recipe.results) <= ran
    assert recipe.rows or recipe.pictures or recipe.differs


def test_chapter_five_is_covered_but_for_its_drawings():
    names = {path.stem for path in RECIPES}
    figures = {f"figure-5.{n}" for n in range(2, 15)} - {"figure-5.7", "figure-5.8"}
    assert figures | {f"table-5.{n}" for n in range(1, 5)} <= names


def test_what_of_chapter_four_can_be_simulated_is_covered():
    assert {f"figure-4.{n}" for n in (1, 3, 4, 5, 6, 7, 8)} <= {path.stem for path in RECIPES}


def test_a_recipe_is_found_by_its_number_unless_a_figure_and_a_table_have_it(tmp_path):
    assert find_recipe(RECIPES[0].parent, "5.11").name == "figure-5.11"
    with pytest.raises(ConfigError, match=r"figure-5.3, table-5.3: say which"):
        find_recipe(RECIPES[0].parent, "5.3")
    with pytest.raises(ConfigError, match="no recipe"):
        find_recipe(tmp_path, "5.3")


def test_a_misspelt_key_is_refused_with_the_nearest(tmp_path):
    path = tmp_path / "figure-1.toml"
    path.write_text('title = "t"\nsource = "s"\nsteps = []\nminuts = 3\n')
    with pytest.raises(UnknownName, match="Did you mean minutes"):
        read_recipe(path)


def test_our_number_is_the_entry_s_that_fits_or_a_ratio_of_two(tmp_path):
    cells = [{"way": "plain", "mbps": 5.0, "s": 6.0}, {"way": "split", "mbps": 5.0, "s": 2.0}]
    (tmp_path / "link.json").write_text(json.dumps({"results": {"cells": cells}}))
    plain = {"way": "plain", "mbps": 5}
    assert ours_of(Row("x", 1, "link.cells", plain, "s"), tmp_path) == 6.0
    assert ours_of(Row("x", 1, "link.cells", plain, "s", over={"way": "split"}), tmp_path) == 3.0
    assert ours_of(Row("x", 1, "link.cells", {"way": "no"}, "s"), tmp_path) == "–"
    assert ours_of(Row("x", 1, "missing.cells", plain, "s"), tmp_path) == "–"
    with pytest.raises(ConfigError, match="2 entries"):
        ours_of(Row("x", 1, "link.cells", {"way": ["plain", "split"]}, "s"), tmp_path)
