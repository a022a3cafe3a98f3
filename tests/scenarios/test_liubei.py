"""LiuBei in simulation: one model a step is enough, if it is looked at closely."""

import json

import numpy as np
import pytest

from garfield.apps.settings import Settings
from garfield.core.config import read_toml
from garfield.core.errors import BoundError, ConfigError
from garfield.launch.assemble import settled
from garfield.launch.simulate import simulate
from tests.command import invoke
from tests.marks import heavy_but
from tests.network_record import recorded

BASE = Settings().updated(
    app="liubei", model="digits_mlp", data="digits", workers=9, byzantine_workers=2, servers=4,
    byzantine_servers=1, steps=40, learning_rate=0.5, gather_every=5, evaluate_every=0,
    timeout_s=1.0, give_up_s=10.0,
)  # fmt: skip
LEARNT = 0.85  # chance is 0.1
WORDS = 4810  # parameters of digits_mlp


def run(settings):
    events = []
    simulate(settings, events.append)
    return events


def calm(**changes):
    """Nobody lies, nobody is suspected."""
    return BASE.updated(byzantine_workers=0, byzantine_servers=0, **changes)


# -- what it is for ---------------------------------------------------------------------------


@pytest.mark.heavy
def test_a_lying_server_s_models_are_refused_and_the_rest_are_reported(tmp_path):
    words = [
        "train", "--app", "liubei", "--model", "digits_mlp", "--data", "digits", "--workers", 9,
        "--byzantine-workers", 2, "--servers", 4, "--byzantine-servers", 1, "--steps", 60,
        "--learning-rate", 0.5, "--gather-every", 5, "--worker-attack", "reverse",
        "--server-attack", "reverse", "--simulate", "--json", "--out", tmp_path / "x",
    ]  # fmt: skip
    done = invoke([str(word) for word in words])
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / "x/summary.json").read_text())
    filters = summary["filters"]
    assert summary["accuracy"] > LEARNT
    assert filters["lies_rejected"] == 1.0
    assert filters["models"]["server-3"]["judged"] > 50
    assert 0.1 < filters["false_rejections"] < 0.5  # f_ps / n_ps by construction, more at first


@pytest.mark.parametrize("liars", heavy_but([0, 4, 8], 4))
def test_it_learns_with_up_to_8_of_20_workers_lying(liars):
    attacked = BASE.updated(workers=20, byzantine_workers=liars, worker_attack="reverse")
    assert run(attacked.updated(server_attack="random", steps=30))[-1]["accuracy"] > 0.7


def test_a_silent_server_costs_each_worker_a_time_out_and_then_none(monkeypatch):
    record = recorded(monkeypatch)
    events = run(BASE.updated(server_attack="silence"))
    assert events[-1]["accuracy"] > LEARNT
    asked = [p for p in record.pulls if p.kind == "model" and p.asked == 1]
    in_vain = [p for p in asked if not p.heard]
    assert len(in_vain) <= 9
    assert record.simulation.now_s <= 25  # not one in each of the 32 steps of scatter


# -- rounds, messages, bytes ---------------------------------------------------------------------


def test_rounds_are_those_of_plain_training_and_one_more_in_a_gather(monkeypatch):
    record = recorded(monkeypatch)
    run(Settings().updated(**_like(calm(), app="vanilla", servers=1, gather_every=0)))
    plain = record.rounds(3)
    assert plain == {"model", "gradient"}
    record.pulls.clear()
    run(calm(steps=20))
    for step in range(19):
        before_gather = (step + 1) % 5 == 0
        assert record.rounds(step) == (plain | {"proposal"} if before_gather else plain)


def test_messages_and_bytes_are_as_promised(monkeypatch):
    record = recorded(monkeypatch)
    events = run(calm(steps=20))
    judged = sum(tested for tested, _ in events[-1]["filters"].values())
    gathers = [p for p in record.pulls if p.kind == "model" and p.asked == 4 and p.step < 20]
    planned = [p for p in gathers if p.step % 5 == 0]
    assert len(planned) == 4 * 9
    messages = record.messages()
    assert messages["gradient"] == 20 * 4 * 9  # every server pulls all
    assert messages["proposal"] == 4 * 4 * 4
    assert sum(len(p.heard) for p in record.pulls if p.asked == 1) == judged
    assert judged >= 16 * 9  # one model a worker, in each of 16 steps of scatter
    models_of_the_end = record.bytes_received - 4 * WORDS * messages.total()
    assert 0 <= models_of_the_end <= 4 * WORDS * 4 * 9  # on their way to workers when all ended


def test_a_worker_pulls_far_fewer_models_than_with_msmw(monkeypatch):
    record = recorded(monkeypatch)
    run(calm(steps=20))
    scattered = record.messages()["model"]
    record.pulls.clear()
    run(
        BASE.updated(app="msmw", gather_every=0, byzantine_workers=0, byzantine_servers=0, steps=20)
    )
    assert scattered < 0.7 * record.messages()["model"]


def _like(settings, **changes):
    names = ("model", "data", "workers", "servers", "steps", "evaluate_every", "gather_every")
    return {**{name: settings.values()[name] for name in names}, **changes}


# -- how it goes about it ------------------------------------------------------------------------


def test_servers_are_asked_in_an_order_of_the_seed(monkeypatch):
    def first_asked(seed):
        record = recorded(monkeypatch)
        run(calm(steps=10, seed=seed))
        return [(p.asker, p.step, p.heard) for p in record.pulls if p.asked == 1]

    once = first_asked(0)
    assert once == first_asked(0)
    assert once != first_asked(1)
    assert len({heard for asker, _, heard in once if asker == "worker-0"}) > 1


@pytest.mark.heavy
def test_without_liars_scattering_changes_nothing_but_the_traffic():
    """All honest servers hold one model, whichever is pulled: the bits are those of msmw."""
    scattered = _model(calm(steps=12))
    plain = calm(steps=12).updated(app="msmw", gather_every=0, momentum=0.0)
    np.testing.assert_array_equal(scattered, _model(plain))


def _model(settings):
    server = simulate(settings, lambda event: None)["server-0"]
    vector = np.empty(server.model.size + server.model.tail, np.float32)
    server.model.read(vector)
    return vector


def test_the_period_is_worked_out_alike_at_every_node_and_written_down(tmp_path):
    left_open = calm(gather_every=0, learning_rate=0.01)
    period = settled(left_open).own.gather_every
    assert period > 1
    settled.cache_clear()
    assert settled(left_open).own.gather_every == period
    assert settled(left_open.updated(learning_rate=5.0)).own.gather_every == 1
    words = [
        "train", "--app", "liubei", "--model", "digits_mlp", "--data", "digits", "--workers", "9",
        "--servers", "4", "--steps", "2", "--learning-rate", "0.01", "--simulate",
        "--out", str(tmp_path / "x"),
    ]  # fmt: skip
    assert invoke(words).exit_code == 0
    assert read_toml(tmp_path / "x/config.toml")["gather_every"] == period


# -- what it refuses ---------------------------------------------------------------------------


def test_momentum_is_zero_by_default_and_refused_when_asked_for():
    assert BASE.learning.momentum == 0.0
    for changes in ({"momentum": 0.9}, {"weight_decay": 1e-4}):
        with pytest.raises(ConfigError, match="plain SGD: set momentum and weight_decay to 0"):
            BASE.updated(**changes).check()


def test_three_servers_with_a_liar_are_refused():
    with pytest.raises(BoundError, match=r"needs n >= 4 servers \(3f \+ 1\) .*, got n=3"):
        BASE.updated(servers=3).check()


def test_asynchrony_is_refused():
    with pytest.raises(ConfigError, match="Choose guanyu"):
        BASE.updated(asynchronous=True).check()


def test_other_applications_do_not_know_its_option():
    with pytest.raises(ConfigError, match="msmw does not use gather_every"):
        BASE.updated(app="msmw").check()
