"""`garfield variance` on a tiny model: real gradients, and what rules make of them."""

import json
import math

import pytest

from garfield import GARS
from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError
from garfield.gars import parse
from garfield.launch.variance import honest_run
from garfield.report.variance_table import verdicts
from tests.command import invoke

pytest.importorskip("torch")

TINY = ("variance", "--model", "digits_mlp", "--data", "digits", "--workers", 9, "--f", 2)


@pytest.fixture(scope="module")
def told():
    result = invoke([*TINY, "--steps", 4, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_every_step_is_measured_and_every_rule_judged(told):
    assert (told["n"], told["f"], told["model"]) == (9, 2, "digits_mlp")
    assert [each["step"] for each in told["steps"]] == [1, 2, 3, 4]
    assert all(0 < each["variance_ratio"] < 10 for each in told["steps"])
    rules = {each["rule"]: each for each in told["rules"]}
    assert set(rules) == {name for name, rule in GARS.items() if rule.ratio}
    assert rules["mda"]["delta"] == pytest.approx(2 * 2**0.5 * 2 / 7)


def test_a_rule_holds_where_its_delta_times_the_ratio_is_below_one(told):
    ratios = [each["variance_ratio"] for each in told["steps"]]
    for rule in told["rules"]:
        held = sum(rule["delta"] * ratio < 1 for ratio in ratios) / 4
        assert rule["held"] == pytest.approx(held), rule["rule"]
        assert rule["worst_kappa"] == pytest.approx(1 / (rule["delta"] * max(ratios)))


def test_larger_batches_vary_less(told):
    large = json.loads(invoke([*TINY, "--steps", 4, "--batch", 128, "--json"]).stdout)
    assert large["ratio"] < told["ratio"]


def test_the_table_has_a_verdict_per_rule():
    result = invoke([*TINY, "--steps", 2, "--rules", "mda,krum,bulyan,nnm+median"])
    assert result.exit_code == 0, result.output
    assert "times too much" in result.stdout  # krum
    assert "needs n ≥ 11, here n = 9" in result.stdout
    assert "equation 3.13 has no Δ for it" in result.stdout
    assert "7 honest workers send (velocities)" in result.stdout


def test_a_file_of_a_run_tells_who_may_lie(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        'app = "msmw"\nmodel = "digits_mlp"\ndata = "digits"\nworkers = 7\nservers = 4\n'
        'byzantine-workers = 2\nworker-attack = "reverse"\nbyzantine-servers = 1\n'
        'server-attack = "reverse"\nsteps = 5000\nasynchronous = true\n'
    )
    words = ["variance", "--config", path, "--steps", 1, "--json"]
    result = invoke(words)
    assert result.exit_code == 0, result.output
    assert (json.loads(result.stdout)["n"], json.loads(result.stdout)["f"]) == (7, 2)


def test_liars_leave_their_data_alone():
    settings = Settings.of(workers=9, byzantine_workers=2, worker_attack="reverse")
    run = honest_run(settings, 2)
    assert run.nodes.exclude == ("worker-7", "worker-8")
    assert len(run.worker_names) == 7
    assert not run.liars
    with pytest.raises(ConfigError, match=r"within 0\.\.7 \(workers - 2\), got 8"):
        honest_run(settings, 8)


def test_verdicts_in_words():
    rules = {name: parse(name) for name in ("median", "mda", "trimmed-mean")}
    mda, median, trimmed = verdicts(rules, [0.5, 0.5, 0.5], n=17, f=3, batch=32)
    assert (mda.rule, median.rule, trimmed.rule) == ("mda", "median", "trimmed-mean")
    assert mda.words == "held at all 3 steps, by a factor of 3.3 at the least"
    assert median.words.startswith("held at 0 of 3 steps: honest gradients vary 1.9 times too much")
    assert median.words.endswith("batches of about 120 would do")  # 32 · (√14 / 2)² = 112
    assert trimmed.margin is None
    drowned = verdicts(rules, [math.inf, 0.1, math.inf], n=17, f=3, batch=32)[0]
    assert drowned.words == "held at 1 of 3 steps: the gradient drowns in noise"
    mixed = verdicts(rules, [0.5, 0.5, 9.0], n=17, f=3, batch=32)[0]
    assert mixed.words == "held at 2 of 3 steps"


def test_a_wrong_setting_is_refused_before_it_trains():
    result = invoke(["variance", "--workers", 4, "--f", 3])
    assert result.exit_code == 2
    assert "f must be within 0..2" in result.stderr
    assert "Did you mean" in invoke(["variance", "--modl", "digits_mlp"]).stderr
    assert "Did you mean krum" in invoke([*TINY, "--rules", "krumm"]).stderr
