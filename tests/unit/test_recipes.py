"""Recipes: that each can be read and run, and that their tables hold what was found."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.__main__ import _parser
from garfield.core.errors import ConfigError, UnknownName
from garfield.launch.reproduce import settings_of
from garfield.report.recipe_pictures import draw_recipe
from garfield.report.recipe_runs import Cell, Runs, Trained, curves, finals
from garfield.report.recipes import (
    Picture,
    Recipe,
    Row,
    all_recipes,
    compared,
    find_recipe,
    ours_of,
    read_recipe,
)

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
INDEX = (ROOT / "docs" / "reproduce.md").read_text("utf-8")
SIMULATED = [path for path in RECIPES if read_recipe(path).runs]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_calls_benchmarks_with_options_that_they_know(path):
    recipe = read_recipe(path)
    for quick in (False, True):
        for step in recipe.commands(quick=quick):
            module, name, *words = step.words
            assert module == "benchmarks"
            _parser(name, import_module(f"benchmarks.{name}")).parse_args(words)
    made = {step.name for step in recipe.steps} | ({"runs"} if recipe.runs else set())
    assert set(recipe.results) <= made
    assert recipe.differs
    assert recipe.rows or recipe.pictures or not made


@pytest.mark.parametrize("path", SIMULATED, ids=lambda path: path.stem)
def test_the_trainings_of_a_recipe_have_settings_that_can_be_run(path):
    recipe = read_recipe(path)
    assert recipe.runs
    for quick in (False, True):
        for cell in recipe.runs.cells(quick=quick):
            settings_of(cell)


@pytest.mark.parametrize("path", SIMULATED, ids=lambda path: path.stem)
def test_rows_of_simulated_trainings_name_lines_panels_and_points_that_there_are(path):
    recipe = read_recipe(path)
    assert recipe.runs
    places = {cell.place for cell in recipe.runs.cells(quick=False)}
    for row in recipe.rows:
        if row.source != "runs.final":
            continue
        for more in ({}, row.over or {}, row.minus or {}):
            where = {"panel": "", "point": None, **(row.where or {}), **more}
            assert (where["panel"], where["line"], where["point"]) in places, row.what


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_index_lists_every_recipe_under_its_own_name(path):
    assert f"(../recipes/{path.name})" in INDEX


def test_chapter_three_is_covered_but_for_its_drawings():
    names = {path.stem for path in RECIPES}
    assert {f"figure-3.{n}" for n in range(3, 11)} | {"table-3.1"} <= names


def test_the_papers_of_the_lecture_are_covered():
    papers = {path.stem.partition("-")[0] for path in RECIPES}
    assert {"krum", "bulyan", "draco", "aggregathor", "guanyu", "liubei"} <= papers


def test_chapter_five_is_covered_but_for_its_drawings():
    names = {path.stem for path in RECIPES}
    figures = {f"figure-5.{n}" for n in range(2, 15)} - {"figure-5.7", "figure-5.8"}
    assert figures | {f"table-5.{n}" for n in range(1, 5)} <= names


def test_what_of_chapter_four_can_be_simulated_is_covered():
    assert {f"figure-4.{n}" for n in (1, 3, 4, 5, 6, 7, 8)} <= {path.stem for path in RECIPES}


def test_chapter_six_is_covered_but_for_its_drawings():
    names = {path.stem for path in RECIPES}
    assert {f"figure-6.{n}" for n in range(5, 19)} | {"table-6.1"} <= names


def test_recipes_are_listed_by_their_numbers_and_then_by_name():
    names = [recipe.name for recipe in all_recipes(ROOT / "recipes")]
    assert names[0] == "figure-3.3"
    assert names.index("figure-5.9") < names.index("figure-5.10")
    assert names.index("figure-5.14") < names.index("aggregathor-f")


def test_a_recipe_is_found_by_its_number_unless_a_figure_and_a_table_have_it():
    assert find_recipe(RECIPES[0].parent, "5.11").name == "figure-5.11"
    assert find_recipe(RECIPES[0].parent, "draco-tables").name == "draco-tables"
    with pytest.raises(ConfigError, match=r"figure-5.3, table-5.3: say which"):
        find_recipe(RECIPES[0].parent, "5.3")
    with pytest.raises(ConfigError, match=r"draco-convergence, draco-tables: say which"):
        find_recipe(RECIPES[0].parent, "draco")
    with pytest.raises(UnknownName, match="Did you mean krum-attacks"):
        find_recipe(RECIPES[0].parent, "krum-atacks")


def test_a_misspelt_key_is_refused_with_the_nearest(tmp_path):
    path = tmp_path / "figure-1.toml"
    path.write_text('title = "t"\nsource = "s"\nsteps = []\nminuts = 3\n')
    with pytest.raises(UnknownName, match="Did you mean minutes"):
        read_recipe(path)
    path.write_text('title = "t"\nsource = "s"\nminutes = 3\n[runs]\nseed = 3\nlines = {}\n')
    with pytest.raises(UnknownName, match="Did you mean seeds"):
        read_recipe(path)


def test_our_number_is_the_entry_s_that_fits_or_a_ratio_or_difference_of_two(tmp_path):
    cells = [{"way": "plain", "mbps": 5.0, "s": 6.0}, {"way": "split", "mbps": 5.0, "s": 2.0}]
    (tmp_path / "link.json").write_text(json.dumps({"results": {"cells": cells}}))
    plain, split = {"way": "plain", "mbps": 5}, {"way": "split"}
    assert ours_of(Row("x", 1, "link.cells", plain, "s"), tmp_path) == 6.0
    assert ours_of(Row("x", 1, "link.cells", plain, "s", over=split), tmp_path) == 3.0
    assert ours_of(Row("x", 1, "link.cells", plain, "s", minus=split), tmp_path) == 4.0
    assert ours_of(Row("x", 1, "link.cells", {"way": "no"}, "s"), tmp_path) == "–"
    assert ours_of(Row("x", 1, "missing.cells", plain, "s"), tmp_path) == "–"
    with pytest.raises(ConfigError, match="2 entries"):
        ours_of(Row("x", 1, "link.cells", {"way": ["plain", "split"]}, "s"), tmp_path)


RUNS = Runs(
    lines={"average": {"gar": "average"}, "median": {"gar": "median", "batch": 8}},
    settings={"steps": 100, "batch": 32},
    panels={"calm": {}, "lies": {"byzantine_workers": 1}},
    points={"1": {"workers": 1}, "2": {"workers": 2}},
    seeds=2,
    quick={"steps": 5},
)


def test_there_is_a_cell_for_every_line_panel_point_and_seed_and_a_line_s_own_settings_win():
    cells = RUNS.cells(quick=False)
    assert len(cells) == 2 * 2 * 2 * 2
    last = cells[-1]
    assert (last.line, last.panel, last.point, last.seed) == ("median", "lies", 2, 1)
    assert dict(last.values) == {
        "steps": 100, "batch": 8, "byzantine_workers": 1, "workers": 2, "gar": "median", "seed": 1
    }  # fmt: skip
    assert {cell.values["steps"] for cell in RUNS.cells(quick=True)} == {5}


def trained(*heights, ended=None):
    return Trained([(10 * n, h) for n, h in enumerate(heights, 1)], ended, 1e6, 3.0, 1.0)


def test_seeds_become_mean_and_deviation_and_a_broken_run_stays_where_it_ended():
    sound = [(Cell("sound", "", None, seed, {}), trained(0.5, 0.8)) for seed in (0, 1)]
    broken = [(Cell("broken", "", None, 0, {}), trained(0.1, ended="diverged"))]
    of_sound, of_broken = finals([*sound, *broken], target=75)
    assert of_sound["accuracy"] == pytest.approx(80)
    assert (of_sound["deviation"], of_sound["steps_to_target"], of_sound["seeds"]) == (0, 20, 2)
    assert (of_broken["ended_early"], of_broken["steps_to_target"]) == (1, None)
    heights = {(each["line"], each["step"]): each["accuracy"] for each in curves(sound + broken)}
    assert heights["broken", 20] == heights["broken", 10] == pytest.approx(10)


def test_a_picture_has_a_part_for_each_panel_and_its_legend_beside_them(tmp_path):
    pytest.importorskip("matplotlib")
    listed = [
        {"panel": panel, "line": line, "step": step, "accuracy": 50.0 + step, "deviation": 2.0}
        for panel in ("calm", "lies")
        for line in ("average", "median")
        for step in range(3)
    ]
    (tmp_path / "runs.json").write_text(json.dumps({"results": {"curve": listed}}))
    look = {"x": "step", "y": "accuracy", "by": "line", "panels": "panel", "error": "deviation"}
    pictures = tuple(
        Picture(f"as-{kind}", "runs.curve", kind=kind, **look) for kind in ("lines", "bars")
    )
    recipe = Recipe("figure-1", "Title", "Source", 1, rows=(), pictures=pictures)
    drawn = draw_recipe(recipe, tmp_path, tmp_path)
    assert [path.name for path in drawn] == ["as-lines.png", "as-bars.png"]
    assert all(path.stat().st_size > 1000 for path in drawn)
    assert compared(recipe, tmp_path) == []
