"""What `garfield split plan` shows: a table, a sentence and a picture."""

import dataclasses

import pytest
from rich.console import Console

from garfield.core.errors import ConfigError
from garfield.report.split_plan import draw_plan, plan_caption, plan_json, plan_table, size
from garfield.split.plan_rows import plan_facts, plan_rows
from garfield.split.planner import Costs, choose, situation_of
from garfield.split.profile import LayerProfile, ModelProfile

SIZES = (774_400, 186_624, 129_792, 36_864, 16_384, 4_000)
PROFILE = ModelProfile(
    "mine",
    (3, 224, 224),
    tuple(
        LayerProfile(f"layer{at}", (at + 1, 2), size, 0.001, 1_000_000)
        for at, size in enumerate(SIZES)
    ),
    batch=8,
    train_s=0.001,
    freeze=4,
)


def planned(stored=150_528, bps=1e9, planner="adaptive", costs=True, **prices):
    situation = situation_of(
        PROFILE,
        stored_bytes=stored,
        batch=2000,
        bandwidth_bps=bps,
        freeze=4,
        costs=Costs.of(PROFILE) if costs else None,
    )
    plan = choose(situation, planner)
    return plan_facts(PROFILE, situation, plan), plan_rows(PROFILE, situation, plan, **prices)


def shown(table):
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    return console.export_text()


def test_a_row_for_every_place_to_cut_and_one_is_chosen():
    facts, rows = planned()
    assert [row.split for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [row.split for row in rows if row.chosen] == [4]
    assert [row.split for row in rows if row.candidate] == [3, 4, 5]
    assert rows[0].bytes_per_iteration == 2000 * 150_528
    text = shown(plan_table(facts, rows))
    assert "→" in text
    assert "layer3" in text
    assert "73.7 MB" in text  # 2000 × 36,864
    assert "bound by" in text
    assert "egress" not in text


def test_what_an_epoch_costs_is_shown_where_a_price_is_known():
    facts, rows = planned(egress_per_gb=0.09, samples=1_000_000)
    assert rows[0].epoch_cost == pytest.approx(150.528 * 0.09)
    assert "$13.5475" in shown(plan_table(facts, rows))


def test_the_caption_says_what_is_gained():
    facts, rows = planned(bps=20e6)
    told = plan_caption(facts, rows)
    assert "split 5, behind layer4 (the thesis's index 4)" in told
    assert "9.2 times fewer bytes" in told
    assert "Do not use this here" not in told


def test_the_caption_says_where_not_to_use_it():
    facts, rows = planned(stored=16_000)
    assert "Do not use this here: streaming" in plan_caption(facts, rows)
    slow = dataclasses.replace(rows[4], chosen=True, iteration_s=rows[0].iteration_s)
    others = [dataclasses.replace(row, chosen=False) for row in rows]
    assert "for speed" in plan_caption(facts, [*others[:4], slow, *others[5:]])


def test_without_times_the_columns_about_time_are_left_out():
    facts, rows = planned(costs=False)
    assert "iteration" not in shown(plan_table(facts, rows))
    assert "predicted" not in plan_caption(facts, rows)


def test_scripts_get_the_same():
    facts, rows = planned()
    found = plan_json(facts, rows)
    assert (found["split"], found["model"], len(found["splits"])) == (4, "mine", 6)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture_is_drawn(tmp_path, ending):
    pytest.importorskip("matplotlib")
    facts, rows = planned()
    path = tmp_path / f"plan.{ending}"
    draw_plan(facts, rows, path)
    assert path.stat().st_size > 5_000
    with pytest.raises(ConfigError, match="ends in"):
        draw_plan(facts, rows, tmp_path / "plan.txt")


@pytest.mark.parametrize(
    ("count", "text"),
    [(12, "12 B"), (1_500, "1.5 KB"), (36_864, "36.9 KB"), (301e6, "301 MB"), (2.5e12, "2,500 GB")],
)
def test_sizes_in_words(count, text):
    assert size(count) == text
