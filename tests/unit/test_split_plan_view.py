"""What `garfield split plan` shows: numbers, a table and a picture."""

import dataclasses

import pytest
from rich.console import Console

from garfield.core.errors import ConfigError
from garfield.report.split_costs import costs_headline, costs_table, draw_costs
from garfield.split.plan_view import PlanSettings, view


@pytest.fixture(scope="module")
def alexnet():
    """AlexNet at 1 Gbps and a batch of 2000, stored as uint8: a cell of Table 5.3."""
    return view(PlanSettings(model="alexnet", bandwidth="1Gbps", batch=2000, times=False))


def shown(table):
    with open("/dev/null", "w") as nowhere:
        console = Console(width=200, record=True, file=nowhere)
        console.print(table)
        return console.export_text()


def test_every_place_to_cut_has_a_row_and_the_thesis_s_choice_is_made(alexnet):
    assert [row.split for row in alexnet.rows] == list(range(23))
    assert alexnet.split - 1 == 12  # as many bytes as the 13 of Table 5.3
    assert [row.split for row in alexnet.rows if row.candidate] == [6, 13, 14, 15, 16, 17, 18]
    assert [row.frozen for row in alexnet.rows] == [True] * 19 + [False] * 4
    assert alexnet.rows[13].bytes_per_iteration == 2000 * 36_864
    assert "4.1 times fewer bytes" in alexnet.advice


def test_what_leaves_the_store_is_priced(alexnet):
    assert alexnet.rows[0].epoch_cost == pytest.approx(0.09 * 1_000_000 * 150_528 / 1e9)


def test_the_table_marks_the_chosen_one(alexnet):
    lines = shown(costs_table(alexnet)).splitlines()
    (marked,) = [line for line in lines if "→" in line]
    assert "features.12" in marked
    assert "alexnet" in costs_headline(alexnet)


def test_jpeg_is_streamed_and_the_advice_says_so():
    found = view(PlanSettings(model="alexnet", bandwidth="150Mbps", stored_as="jpeg", times=False))
    assert found.split == 0
    assert found.advice.startswith("Do not use this here")


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture_is_drawn(alexnet, tmp_path, ending):
    pytest.importorskip("matplotlib")
    timed = dataclasses.replace(
        alexnet, rows=tuple(dataclasses.replace(row, forward_s=0.001) for row in alexnet.rows)
    )
    path = tmp_path / f"plan.{ending}"
    draw_costs(timed, path)
    assert path.stat().st_size > 5_000


@pytest.mark.parametrize("wrong", [{}, {"bandwidth": "1Gbps", "stored_as": "png"}])
def test_what_cannot_be_planned_for_is_refused(wrong):
    with pytest.raises(ConfigError):
        PlanSettings(**wrong)
