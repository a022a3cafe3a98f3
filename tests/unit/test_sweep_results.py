"""From runs to setups over seeds, to what tuning chose, and to tables and pictures of them."""

import csv
import io
from dataclasses import replace

import pytest

from garfield.report.sweep_pictures import apart, draw_all
from garfield.report.sweep_results import CellResult, SweepResults, Tuning
from garfield.report.sweep_rows import as_csv
from garfield.report.sweep_tables import Layout, tables_text, worst


def result(accuracy, status="done", best=None, metric="accuracy", **varied):
    curve = [(10, accuracy / 2), (20, accuracy)] if status == "done" else [(10, 0.1)]
    return CellResult(
        str(varied), varied, varied.get("seed", 0), status, accuracy, best or accuracy,
        curve=() if status == "failed" else curve, wall_s=1.0, metric=metric,
        larger_is_better=metric == "accuracy",
    )  # fmt: skip


def grid(accuracies, **shared):
    """Rules by attacks by two seeds."""
    return [
        result(accuracy + 0.02 * seed, gar=gar, worker_attack=attack, seed=seed, **shared)
        for (gar, attack), accuracy in accuracies.items()
        for seed in (0, 1)
    ]


FOUR = {("a", "x"): 0.9, ("a", "y"): 0.5, ("b", "x"): 0.7, ("b", "y"): 0.8}
NAMES = ("gar", "worker_attack", "seed")


def test_a_setup_is_the_mean_and_deviation_over_its_seeds():
    setups = SweepResults(grid(FOUR), NAMES).setups
    assert [setup.varied for setup in setups] == [
        {"gar": gar, "worker_attack": attack} for gar, attack in FOUR
    ]
    assert setups[0].mean == pytest.approx(0.91)
    assert setups[0].deviation == pytest.approx(0.02 / 2**0.5)
    assert [tuple(map(round_, point)) for point in setups[0].curve()] == [
        (10, 0.455, 0.007), (20, 0.91, 0.014),
    ]  # fmt: skip


def round_(number):
    return round(number, 3)


def test_a_diverged_run_counts_as_nothing_and_a_failed_one_not_at_all():
    runs = [
        result(0.8, gar="a", seed=0), result(0.0, "diverged", gar="a", seed=1),
        result(0.0, "failed", gar="a", seed=2),
    ]  # fmt: skip
    setup = SweepResults(runs, ("gar", "seed")).setups[0]
    assert setup.mean == pytest.approx(0.4)
    assert (setup.count("diverged"), setup.count("failed")) == (1, 1)
    assert [round_(mean) for _, mean, _ in setup.curve()] == [0.25, 0.4]
    assert "40.0 ± 56.6 ✗" in tables_text(SweepResults(runs, ("gar", "seed")))


def test_the_worst_attack_on_each_rule_is_found():
    results = SweepResults(grid(FOUR), NAMES)
    found = {
        fixed["gar"]: setup.varied["worker_attack"] for fixed, setup in worst(results, NAMES[1])
    }
    assert found == {"a": "y", "b": "x"}


def test_another_metric_than_accuracy_may_be_better_the_smaller_it_is(tmp_path):
    runs = [
        result(error + seed, metric="mse", gar=gar, worker_attack=attack, learning_rate=rate,
               seed=seed)
        for (gar, attack, rate), error in {
            ("a", "x", 0.1): 2.0, ("a", "y", 0.1): 7.0, ("a", "x", 1.0): 3.0, ("a", "y", 1.0): 5.0,
        }.items()
        for seed in (0, 1)
    ]  # fmt: skip
    diverged = result(0, "diverged", metric="mse", gar="a", worker_attack="z", learning_rate=0.1)
    runs.append(replace(diverged, score=None, varied={**diverged.varied, "seed": 0}))
    results = SweepResults(runs, (*NAMES, "learning_rate"), Tuning(("learning_rate",)))
    assert [setup.tuned["learning_rate"] for setup in results.setups] == [0.1, 1.0, 0.1]
    assert [s.varied["worker_attack"] for _, s in worst(results, "worker_attack")] == ["y"]
    text = tables_text(results)
    assert "Mse\n" in text
    assert "5.5 ± 0.7071" in text
    row = next(csv.DictReader(io.StringIO(as_csv(results))))
    assert (row["accuracy"], row["metric"], row["score"]) == ("", "mse", "2.0")
    assert len(draw_all(results, tmp_path)) == 2


def tuned(tuning):
    """Rate 0.1 is best under x, 1.0 under y, and 0.5 is nowhere worst."""
    means = {("x", 0.1): 0.9, ("x", 0.5): 0.7, ("x", 1.0): 0.3,
             ("y", 0.1): 0.2, ("y", 0.5): 0.6, ("y", 1.0): 0.8}  # fmt: skip
    runs = [
        result(mean + seed / 100, worker_attack=attack, learning_rate=rate, seed=seed)
        for (attack, rate), mean in means.items()
        for seed in (0, 1)
    ]
    return SweepResults(runs, ("worker_attack", "seed", "learning_rate"), tuning)


def test_tuning_chooses_for_each_setup_by_the_mean_over_seeds():
    results = tuned(Tuning(("learning_rate",)))
    chosen = {s.varied["worker_attack"]: s.tuned["learning_rate"] for s in results.setups}
    assert chosen == {"x": 0.1, "y": 1.0}
    assert "chosen for each setup by the mean over seeds of the final score on the test set" in (
        tables_text(results)
    )
    told = list(csv.DictReader(io.StringIO(as_csv(results))))
    assert len(told) == 12
    assert [row["chosen"] for row in told].count("true") == 4


def test_tuning_may_choose_once_for_the_worst_of_all_attacks():
    results = tuned(Tuning(("learning_rate",), worst_over="worker_attack"))
    assert [setup.tuned["learning_rate"] for setup in results.setups] == [0.5, 0.5]


def test_a_rate_whose_run_failed_is_not_chosen():
    runs = [
        result(0.9, gar="a", learning_rate=0.1, seed=0),
        result(0.0, "failed", gar="a", learning_rate=0.1, seed=1),
        *(result(0.6, gar="a", learning_rate=1.0, seed=seed) for seed in (0, 1)),
    ]
    names = ("gar", "seed", "learning_rate")
    assert SweepResults(runs, names, Tuning(("learning_rate",))).setups[0].tuned == {
        "learning_rate": 1.0
    }


@pytest.mark.parametrize(
    ("names", "layout"),
    [
        (["gar", "worker_attack", "partition", "byzantine_workers", "batch"],
         Layout("gar", "worker_attack", "partition", "byzantine_workers", ("batch",))),
        (["gar"], Layout("gar", None)),
        (["batch", "momentum"], Layout("batch", "momentum")),
        (["partition", "gar"], Layout("gar", "partition")),
        (["byzantine_workers", "partition"], Layout("byzantine_workers", "partition")),
        ([], Layout(None, None)),
    ],
)  # fmt: skip
def test_rules_stand_against_attacks_as_far_as_they_differ(names, layout):
    assert Layout.of(names) == layout


def test_names_beside_curves_keep_apart_and_in_range():
    assert apart([50.0], 5, 3, 97) == [50.0]
    assert apart([90, 20, 91], 5, 3, 97) == [90, 20, 95]
    assert apart([97, 97, 97], 5, 3, 97) == [87, 92, 97]
    assert apart([0, 0], 5, 3, 97) == [3, 8]
    assert apart([1, 2, 3], 50, 0, 60) == [0, 30, 60]


@pytest.mark.slow
def test_pictures_show_every_panel_and_clip_nothing(tmp_path):
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from garfield.report import sweep_pictures

    names = (*NAMES, "partition", "byzantine_workers")
    runs = [
        run
        for partition in ("iid", "dirichlet(alpha=0.1)")
        for f in (1, 2)
        for run in grid(FOUR, partition=partition, byzantine_workers=f)
    ]
    results = SweepResults(runs, names)
    drawn = draw_all(results, tmp_path)
    assert sorted(path.name.partition("-")[0] for path in drawn) == ["curves"] * 4 + ["heatmap.png"]
    layout = Layout.of(results.setup_names)
    for figure in (
        sweep_pictures.heatmap(results.setups, layout, {}),
        sweep_pictures.curves(results.setups[:4], layout, {"partition": "iid"}),
    ):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        drawn_on = figure.get_tightbbox(canvas.get_renderer())  # in inches
        assert drawn_on.x0 >= -0.01
        assert drawn_on.y0 >= -0.01
        assert drawn_on.x1 <= figure.get_figwidth() + 0.01
        assert drawn_on.y1 <= figure.get_figheight() + 0.01
