"""Who is left out, and why: by a rule's quota, by suspicion, or not at all where f = 0."""

import json

import numpy as np
import pytest

from garfield.apps.settings import Settings
from garfield.gars import GARS, init
from garfield.launch.unheard import UnheardWorkers
from garfield.report.run_history import Roster, read_history
from garfield.report.summary import left_out, suspected
from tests.command import invoke
from tests.marks import heavy_but

RUN = ("train", "--data", "digits", "--model", "digits_mlp", "--simulate", "--steps", 3, "--json")
SELECTING = ["multi-krum", "krum", "aksel", "nnm+multi-krum"]
WORKERS = tuple(f"worker-{i}" for i in range(5))


def trained(tmp_path, *words):
    done = invoke((*RUN, "--out", tmp_path / "run", *words))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("rule", heavy_but(SELECTING, "multi-krum"))
def test_a_run_that_is_told_f_0_averages_and_says_so_once(tmp_path, rule):
    summary, said = trained(tmp_path, "--gar", rule)
    assert summary["gar"] == "average"
    assert summary["left_out"] == summary["suspected"] == {}
    assert said.count(f"so gradients are averaged. {rule} would leave some out") == 1


@pytest.mark.slow
def test_it_then_learns_just_what_averaging_learns(tmp_path):
    calm, _ = trained(tmp_path / "a", "--gar", "multi-krum", "--partition", "dirichlet(alpha=0.1)")
    plain, said = trained(tmp_path / "b", "--gar", "average", "--partition", "dirichlet(alpha=0.1)")
    assert calm["loss"] == plain["loss"]
    assert "averaged" not in said


@pytest.mark.slow
def test_so_does_the_default_rule(tmp_path):
    """It hears all, and would clip some."""
    calm, said = trained(tmp_path / "a", "--partition", "dirichlet(alpha=0.1)")
    plain, _ = trained(tmp_path / "b", "--gar", "average", "--partition", "dirichlet(alpha=0.1)")
    assert calm["loss"] == plain["loss"]
    assert said.count("centered-clipping would clip some all the same") == 1
    words = ("--workers", 7, "--f-workers", 1)
    told, said = trained(tmp_path / "c", *words)
    assert told["gar"] == "centered-clipping"
    assert "averaged" not in said


@pytest.mark.parametrize("app", ["aggregathor", "guanyu", "liubei"])
def test_applications_of_a_paper_keep_its_rule(app):
    assert Settings.of(app=app).aggregation.gar == "multi-krum"
    assert Settings.of(app=app, gar="median").aggregation.gar == "median"
    assert Settings.of(app="ssmw").updated(app=app).updated(app="msmw") == Settings.of(app="msmw")


def test_every_other_rule_hears_all_where_f_is_0_or_is_taken_at_its_word():
    rows = np.random.default_rng(0).standard_normal((9, 30))
    for name, rule in GARS.items():
        dropped = rule.seeded(1)(rows, f=0, explain=True).left_out
        assert bool(dropped) == (rule.anyway == "leave some out"), name
    settings = Settings.of(gar="multi-krum(m=3)")
    assert settings.check().rule_name == "multi-krum(m=3)"
    assert Settings.of(gar="multi-krum", f_workers=1).check().rule_name == "multi-krum"
    assert init("multi-krum", 7, 0).aggregate(rows[:7], explain=True).left_out  # by definition


# -- quota and suspicion --------------------------------------------------------------------------


def history(steps):
    """Steps given as who was trusted, and who was set aside for what."""
    spent = {"time_s": 1.0, "communication_s": 0.0, "aggregation_s": 0.0}
    spent |= {"bytes_sent": 0, "bytes_received": 0}
    events = [
        {"event": "step", "node": "server-0", "step": t + 1, "silent": {}, "set_aside": aside,
         "trusted": [w for w in WORKERS if w not in out and w not in aside], **spent}
        for t, (out, aside) in enumerate(steps)
    ]  # fmt: skip
    return read_history(events, Roster(("server-0",), WORKERS))


def test_who_is_left_out_in_turns_is_not_suspected():
    turns = history([((WORKERS[t % 5], WORKERS[(t + 2) % 5]), {}) for t in range(100)])
    assert set(left_out(turns).values()) == {40}
    assert suspected(turns) == {}


def test_who_is_left_out_always_is_suspected_beyond_what_chance_explains():
    always = history([(("worker-4", WORKERS[t % 4]), {}) for t in range(100)])
    assert left_out(always)["worker-4"] == 100
    assert suspected(always) == {"worker-4": 100 - 55}  # 40 by chance, and three deviations of 4.9


def test_who_is_set_aside_for_cause_is_suspected_each_time():
    broken = history([((), {"worker-2": "non-finite"} if t == 7 else {}) for t in range(20)])
    assert suspected(broken) == {"worker-2": 1}


@pytest.mark.slow
def test_the_summary_tells_both_numbers(tmp_path):
    words = ("--workers", 7, "--byzantine-workers", 2, "--worker-attack", "reverse",
             "--gar", "multi-krum", "--steps", 40)  # fmt: skip
    summary, _ = trained(tmp_path, *words)
    assert sum(summary["left_out"].values()) == 4 * 40  # f + 2 each step, whoever they are
    assert set(summary["suspected"]) == {"worker-5", "worker-6"}
    table = invoke((*RUN[:-1], "--out", tmp_path / "again", *words)).stdout
    assert "left out" in table
    assert "suspected" in table


# -- unheard for long -----------------------------------------------------------------------------


def test_a_worker_that_has_no_part_for_long_is_told_once_with_the_remedy():
    unheard = UnheardWorkers(known_liars=["worker-4"], long=10)
    said = []
    for t in range(35):
        said += unheard.after_step({"worker-0", "worker-1"} | ({"worker-2"} if t == 5 else set()),
                                   WORKERS)  # fmt: skip
    assert [text.split()[0] for text in said] == ["worker-3", "worker-2"]
    assert "last 10 steps" in said[0]
    assert "--exclude worker-3" in said[0]
    assert unheard.after_step(None, WORKERS) == []


@pytest.mark.slow
def test_a_run_warns_of_a_worker_whose_data_nobody_learns_from(tmp_path):
    words = ("--workers", 5, "--f-workers", 1, "--gar", "krum", "--steps", 120)
    _, said = trained(tmp_path, *words, "--partition", "dirichlet(alpha=0.1)", "--batch", 8)
    assert "had no part in the last 100 steps" in said
