"""GuanYu in simulation: a third may lie on either side, and nobody is waited for in vain."""

import pytest

from garfield.apps.settings import Settings
from garfield.core.errors import BoundError, ConfigError
from garfield.launch.adversary import HEAD_START_S
from garfield.launch.node_checkpoints import NodeCheckpoints
from garfield.launch.simulate import simulate
from tests.marks import heavy_but
from tests.network_record import recorded

PUBLISHED = Settings().updated(
    app="guanyu", model="digits_mlp", data="digits", workers=18, byzantine_workers=5, servers=6,
    byzantine_servers=1, steps=40, evaluate_every=0, timeout_s=1.0, give_up_s=5.0,
)  # fmt: skip
SMALL = PUBLISHED.updated(workers=9, byzantine_workers=2, steps=6)
LEARNT = 0.85  # chance is 0.1


def run(settings):
    events = []
    simulate(settings, events.append)
    return events


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("gradients", "models"),
    heavy_but(
        [("reverse", "none"), ("none", "reverse"), ("equivocate", "equivocate"),
         ("silence", "silence")], ("equivocate", "equivocate"),
    ),
    ids=["corrupted gradients", "corrupted models", "equivocation", "silence"],
)  # fmt: skip
def test_the_authors_5_of_18_workers_and_1_of_6_servers_do_not_keep_it_from_learning(
    gradients, models
):
    events = run(PUBLISHED.updated(worker_attack=gradients, server_attack=models))
    assert events[-1]["step"] == 40
    assert events[-1]["accuracy"] > LEARNT
    heard = {
        name for event in events for name in PUBLISHED.worker_names if name not in event["silent"]
    }
    lying = {name for name in PUBLISHED.liars if name.startswith("worker")}
    assert heard.issuperset(lying) or gradients == "silence"  # the liars were in the quorums


def test_one_server_more_than_a_third_lying_is_refused_before_anything_starts():
    with pytest.raises(BoundError, match=r"needs n >= 6 servers \(3f \+ 3\) .* f=1 .*, got n=5"):
        PUBLISHED.updated(servers=5).check()
    with pytest.raises(BoundError, match=r"needs n >= 21 workers"):
        PUBLISHED.updated(byzantine_workers=6).check()


@pytest.mark.parametrize(("quorum", "fine"), [(12, False), (13, True), (14, False)])
def test_quorums_of_gradients_lie_between_2f_plus_3_and_n_minus_f(quorum, fine):
    settings = PUBLISHED.updated(gradient_quorum=quorum)
    if fine:
        assert settings.check().numbers.q_w == quorum
    else:
        with pytest.raises(BoundError, match=r"gradient_quorum must be within 13\.\.13"):
            settings.check()


def test_quorums_of_models_may_be_smaller_than_all_that_must_answer(monkeypatch):
    record = recorded(monkeypatch)
    run(SMALL.updated(workers=12, servers=9, model_quorum=6, gradient_quorum=7))
    heard = {(pull.kind, len(pull.heard)) for pull in record.pulls if pull.heard}  # else: too late
    assert heard == {("model", 6), ("proposal", 6), ("gradient", 7)}


def test_a_quorum_of_models_that_lets_two_halves_train_apart_is_refused():
    with pytest.raises(BoundError, match=r"quorum of 5 models .* apart for ever: wait for 6"):
        SMALL.updated(workers=12, servers=9, model_quorum=5).check()


def test_a_step_has_three_rounds_and_waits_for_n_minus_f_in_each(monkeypatch):
    record = recorded(monkeypatch)
    run(SMALL.updated(worker_attack="silence", server_attack="silence"))
    assert all(record.rounds(step) == {"model", "gradient", "proposal"} for step in range(5))
    waited = {pull.kind: len(pull.heard) for pull in record.pulls}
    assert waited == {"model": 5, "gradient": 7, "proposal": 5}
    one_way = 6 * 3 * HEAD_START_S  # what the network takes for all rounds of 6 steps
    assert record.simulation.now_s == pytest.approx(one_way)  # nobody waited for the silent ones


def test_the_learning_rate_falls_unless_the_user_says_by_how_much():
    assert PUBLISHED.learning.learning_rate_decay > 0
    assert PUBLISHED.updated(learning_rate_decay=0.5).check().learning.rate(2) == pytest.approx(
        0.025
    )
    with pytest.raises(ConfigError, match="decreasing learning rate"):
        PUBLISHED.updated(learning_rate_decay=0.0).check()


def test_it_is_asynchronous_by_itself_and_cannot_be_otherwise():
    assert not PUBLISHED.numbers.synchronous
    with pytest.raises(ConfigError, match="Choose msmw"):
        PUBLISHED.updated(asynchronous=False).check()


@pytest.mark.parametrize("rules", [{"gar": "median"}, {"model_gar": "krum"}])
def test_its_rules_are_part_of_it(rules):
    with pytest.raises(ConfigError, match="Choose msmw for other rules"):
        PUBLISHED.updated(**rules).check()


def test_models_are_joined_by_the_papers_median_if_asked_for():
    assert PUBLISHED.model_rule.name == "trimmed-mean"
    assert PUBLISHED.updated(model_gar="median").check().model_rule.name == "median"


def test_a_run_that_was_interrupted_goes_on_and_learns(tmp_path):
    """Not to the bit: whose replies come first after that is chance, as in a real network."""

    def interrupted(event):
        if event["step"] == 5:
            raise KeyboardInterrupt

    settings, checkpoints = (
        SMALL.updated(steps=30, server_attack="reverse"),
        NodeCheckpoints(tmp_path),
    )
    with pytest.raises(KeyboardInterrupt):
        simulate(settings, interrupted, checkpoints=checkpoints)
    resumed = checkpoints.resumed(settings.server_names, settings.honest_servers)
    assert 4 <= resumed.start.step <= 5
    events = []
    simulate(settings, events.append, checkpoints=resumed)
    first = next(event for event in events if event["event"] == "step")
    assert first["step"] == resumed.start.step + 1
    assert events[-1]["accuracy"] > 0.7


def test_defaults_of_an_application_come_with_it_and_go_with_it():
    back = PUBLISHED.updated(app="msmw")
    assert (back.rounds.asynchronous, back.learning.learning_rate_decay) == (False, 0.0)
    own = Settings.of(learning_rate_decay=0.3).updated(app="guanyu")
    assert own.learning.learning_rate_decay == 0.3


@pytest.mark.parametrize("attack", ["little-is-enough", "min-max", "reverse"])
def test_liars_are_in_the_quorums_whatever_they_must_know(attack):
    """They used to wait for all honest rows, and came when the quorum was full."""
    events = run(SMALL.updated(worker_attack=attack, server_attack=attack, steps=10))
    lying = {name for name in SMALL.liars if name.startswith("worker")}
    used = [lying.difference(event["silent"]) for event in events if event["event"] == "step"]
    assert used == [lying] * 10
