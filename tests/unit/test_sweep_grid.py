"""A grid's file becomes cells: every combination once, each with a name and a digest of its own."""

import re
import sys
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from garfield.apps.settings import Settings
from garfield.core.config import read_toml
from garfield.launch.sweep.grid import cells, digest, directory_name, parse
from garfield.launch.sweep.planning import plan

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_VALUES = {
    "gar": st.sampled_from(["median", "krum", "trimmed-mean", "nnm+median"]),
    "worker_attack": st.sampled_from(["none", "reverse", "sign-flip"]),
    "workers": st.integers(3, 30),
    "learning_rate": st.sampled_from([0.01, 0.1, 1]),
    "seed": st.integers(0, 9),
    "momentum": st.sampled_from([0, 0.5, 0.9]),
}


@st.composite
def contents(draw):
    """A grid's file: each of some settings by itself, in a list, or in lists side by side."""
    names = draw(st.permutations(sorted(_VALUES)))
    base, grid, together = {}, {}, {}
    length = draw(st.integers(1, 3))
    for name in names:
        where = draw(st.sampled_from(["nowhere", "base", "grid", "zip"]))
        if where == "base":
            base[name] = draw(_VALUES[name])
        elif where == "grid":
            grid[name] = draw(st.lists(_VALUES[name], min_size=1, max_size=3, unique=True))
        elif where == "zip":
            several = st.lists(_VALUES[name], min_size=length, max_size=length, unique=True)
            together[name] = draw(several)
    return {**base, "grid": {**grid, **({"zip": [together]} if together else {})}}


@given(contents())
@settings(max_examples=60, deadline=None)
def test_cells_are_every_combination_once(content):
    grid = parse(content)
    assert grid.problems == ()
    lists = {name: values for name, values in content["grid"].items() if name != "zip"}
    together = (content["grid"].get("zip") or [{}])[0]
    lengths = [len(values) for values in lists.values()]
    lengths += [len(next(iter(together.values())))] if together else []
    found = cells(grid)
    assert len(found) == grid.size == prod(lengths)
    assert len({cell.name for cell in found}) == len(found)
    rows = list(zip(*together.values(), strict=True))
    for cell in found:
        made = cell.settings().values()
        assert made["simulate"] is True
        for name, values in lists.items():
            assert made[name] == cell.varied[name]
            assert made[name] in values
        assert not together or tuple(made[name] for name in together) in rows
        given = {k: v for k, v in content.items() if k != "grid"}
        assert given.items() <= made.items()
        usual = Settings.of(**{**given, **cell.varied, "simulate": True}).values()
        assert made == usual


@given(contents(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_a_digest_depends_on_settings_alone_and_not_on_how_a_file_is_ordered(content, random):
    def shuffled(table):
        pairs = list(table.items())
        random.shuffle(pairs)
        return dict(pairs)

    other = shuffled({**content, "grid": shuffled(content["grid"])})
    digests = [
        {digest(cell.settings()) for cell in cells(parse(each))} for each in (content, other)
    ]
    assert digests[0] == digests[1]
    assert len(digests[0]) == parse(content).size


def test_a_digest_knows_users_files_and_not_where_data_lie():
    one = Settings.of(gar="median")
    assert digest(one) == digest(one.updated(data_dir="/elsewhere"))
    assert digest(one) != digest(one.updated(seed=1))
    assert len({digest(one), digest(one, [b"a"]), digest(one, [b"b"])}) == 3


def test_tuned_settings_are_the_last_that_differ_and_lr_is_short_for_the_learning_rate():
    grid = parse({"tune": {"lr": [0.1, 1], "on": "best"}, "grid": {"seed": [0, 1]}})
    assert grid.problems == ()
    assert grid.varied == ("seed", "learning_rate")
    assert (grid.tuning.names, grid.tuning.on) == (("learning_rate",), "best")
    assert [cell.varied["learning_rate"] for cell in cells(grid)] == [0.1, 1.0, 0.1, 1.0]


def test_groups_may_be_tables_here_as_in_a_runs_file():
    grid = parse({"learning": {"batch": 8}, "grid": {"learning": {"momentum": [0.0, 0.9]}}})
    assert grid.problems == ()
    assert [cell.values for cell in cells(grid)] == [
        {"batch": 8, "momentum": 0.0}, {"batch": 8, "momentum": 0.9},
    ]  # fmt: skip


def test_all_that_is_wrong_with_a_file_is_told_at_once():
    content = {
        "modle": "mnist_cnn", "gar": "median", "simulate": False,
        "grid": {
            "gar": ["krum"], "wrkers": [3], "steps": [], "seed": 3, "batch": [1, 1],
            "zip": [{"workers": [5, 6], "momentum": [0.1]}],
        },
        "tune": {"on": "mean", "worst_over": "attack"},
    }  # fmt: skip
    problems = parse(content).problems
    for words in (
        "modle is not a setting. Did you mean model?", "wrkers is not a setting", "steps must be",
        "seed must be a list", "batch=1 twice", "workers has 2, momentum has 1",
        "'final' or 'best'",
        "worst_over must be a setting", "gar is given twice", "leave simulate out",
    ):  # fmt: skip
        assert [words in problem for problem in problems].count(True) == 1, words
    assert len(problems) == 10


def test_each_impossible_cell_is_told_by_its_name_before_anything_starts():
    grid = {"gar": ["median", "bulyan", "medain"], "byzantine_workers": [1, 2]}
    planned = plan(parse({"data": "digits", "model": "digits_mlp", "workers": 7, "grid": grid}))
    *lines, head = planned.refusal(skip_impossible=False)
    assert [line.partition(":")[0] for line in lines] == [
        "gar=bulyan byzantine_workers=2", "gar=medain (2 cells)",
    ]  # fmt: skip
    assert "bulyan needs n >= 11" in lines[0]
    assert "Did you mean median?" in lines[1]
    assert head.startswith("3 of 6 cells are impossible; nothing was started.")
    assert planned.refusal(skip_impossible=True) == []
    assert len(planned.possible) == 3


@pytest.mark.parametrize("attack", ["reverse", "random(scale=10), last", "x" * 300, "a/b:c d"])
def test_a_directory_is_named_after_its_cell_and_fits_any_file_system(attack):
    cell = cells(parse({"grid": {"worker_attack": [attack]}}))[0]
    name = directory_name(cell, "0123456789ab")
    assert name.startswith("worker_attack=")
    assert name.endswith("-0123456789ab")
    assert "/" not in name
    assert len(name.encode()) < 200


ROOT = Path(__file__).parents[2]


def test_byzfls_grid_is_possible_in_every_cell():
    planned = plan(parse(read_toml(ROOT / "recipes/grids/byzfl-benchmark.toml")))
    assert planned.refusal(skip_impossible=False) == []
    assert len(planned.possible) == 144
    assert planned.grid.tuning.worst_over == "worker_attack"


def test_every_grid_of_the_docs_is_possible():
    text = (ROOT / "docs/sweeps.md").read_text()
    found = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len(found) >= 3
    for block in found:
        assert plan(parse(tomllib.loads(block))).refusal(skip_impossible=False) == [], block
