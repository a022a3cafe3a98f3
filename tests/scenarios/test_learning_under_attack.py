"""Whole runs in simulation: what each application claims to survive, it survives."""

import numpy as np
import pytest

from garfield import ATTACKS
from garfield.apps.settings import Settings
from garfield.core.errors import QuorumError
from garfield.launch.simulate import simulate
from garfield.nodes.byzantine import BEHAVIOURS
from tests.marks import heavy_but

SMALL = Settings.of(
    model="digits_mlp", data="digits", workers=9, steps=40, batch=32, learning_rate=0.05,
    evaluate_every=0, timeout_s=1.0, give_up_s=5.0,
)  # fmt: skip
LIES = [*(name for name in ATTACKS if "inner-product" not in name), *BEHAVIOURS,
        "equivocate(attack=little-is-enough)"]  # fmt: skip
MOST = heavy_but(LIES, "reverse", "optimal-little-is-enough", "equivocate", "silence")
LEARNT = 0.85  # chance is 0.1; forty honest steps reach 0.9 and more


def test_every_way_of_failing_that_is_promised_has_its_name():
    promised = {"silence", "stall", "drip", "wrong-shape", "equivocate"}
    assert promised == set(BEHAVIOURS)


def accuracy(settings):
    """Of the first honest server at the end of the run."""
    events = []
    simulate(settings, events.append)
    assert events[-1]["step"] == settings.steps or events[-1]["event"] == "diverged"
    return events[-1]["accuracy"]


@pytest.mark.parametrize("app", ["vanilla", "ssmw", "crash-tolerant"])
def test_without_liars_everybody_learns(app):
    assert accuracy(SMALL.updated(app=app)) > LEARNT


@pytest.mark.parametrize("lie", MOST)
def test_a_trusted_server_learns_whatever_two_workers_do(lie):
    assert accuracy(SMALL.updated(app="ssmw", byzantine_workers=2, worker_attack=lie)) > LEARNT


@pytest.mark.parametrize("lie", MOST)
def test_replicated_servers_learn_whatever_a_server_and_two_workers_do(lie):
    attacked = SMALL.updated(
        app="msmw", servers=4, byzantine_servers=1, byzantine_workers=2,
        worker_attack=lie, server_attack=lie if lie != "label-flip" else "none",
    )  # fmt: skip
    assert accuracy(attacked) > LEARNT


@pytest.mark.parametrize("lie", MOST)
def test_guanyu_learns_whatever_a_server_and_two_workers_do(lie):
    attacked = SMALL.updated(
        app="guanyu", servers=6, byzantine_servers=1, byzantine_workers=2,
        worker_attack=lie, server_attack=lie if lie != "label-flip" else "none",
    )  # fmt: skip
    assert accuracy(attacked) > LEARNT


@pytest.mark.parametrize("lie", MOST)
def test_liubei_learns_whatever_a_server_and_two_workers_do(lie):
    attacked = SMALL.updated(
        app="liubei", servers=4, byzantine_servers=1, byzantine_workers=2, gather_every=3,
        learning_rate=0.5, worker_attack=lie, server_attack=lie if lie != "label-flip" else "none",
    )  # fmt: skip
    assert accuracy(attacked) > LEARNT


@pytest.mark.heavy
@pytest.mark.parametrize("lie", MOST)
def test_peers_learn_whatever_one_of_them_does(lie):
    attacked = SMALL.updated(
        app="decentralized", workers=7, byzantine_workers=1, worker_attack=lie, contractions=1
    )
    assert accuracy(attacked) > LEARNT


@pytest.mark.parametrize(
    "lie", heavy_but(["reverse", "random", "silence", "stall", "equivocate"], "stall")
)
def test_an_asynchronous_quorum_learns_too(lie):
    attacked = SMALL.updated(
        app="msmw", workers=13, servers=4, byzantine_servers=1, byzantine_workers=2,
        gar="bulyan", worker_attack=lie, server_attack=lie, asynchronous=True,
    )  # fmt: skip
    assert accuracy(attacked) > LEARNT


@pytest.mark.parametrize("lie", heavy_but(["reverse", "constant", "huge"], "reverse"))
@pytest.mark.parametrize("app", ["vanilla", "crash-tolerant"])
def test_averaging_fails_to_learn_with_one_liar(app, lie):
    servers = 3 if app == "crash-tolerant" else 1
    attacked = SMALL.updated(
        app=app, servers=servers, workers=11, byzantine_workers=1, worker_attack=lie
    )
    assert accuracy(attacked) < 0.5


def test_more_liars_than_declared_may_ruin_it():
    """The bound is real: declared f and true number of attackers are separate settings."""
    attacked = SMALL.updated(byzantine_workers=4, f_workers=1, worker_attack="reverse")
    assert accuracy(attacked) < LEARNT


@pytest.mark.parametrize(
    "gar",
    heavy_but(
        ["median", "trimmed-mean", "mda", "geometric-median", "caf", "nnm+trimmed-mean",
         "centered-clipping", "bulyan"],
        "median", "nnm+trimmed-mean", "bulyan",
    ),
)  # fmt: skip
def test_any_rule_may_be_chosen(gar):
    workers = 11 if gar == "bulyan" else 9
    attacked = SMALL.updated(workers=workers, byzantine_workers=2, worker_attack="reverse", gar=gar)
    assert accuracy(attacked) > LEARNT


def models(settings):
    servers = simulate(settings, lambda event: None)
    vectors = []
    for name in settings.server_names:
        model = servers[name].model
        vectors.append(np.empty(model.size + model.tail, np.float32))
        model.read(vectors[-1])
    return vectors


@pytest.mark.parametrize("app", ["ssmw", "msmw", "decentralized", "guanyu", "liubei"])
def test_the_same_seed_gives_the_same_model_bit_for_bit(app):
    attacked = SMALL.updated(
        app=app, servers={"msmw": 4, "guanyu": 3, "liubei": 4}.get(app, 1), steps=10, seed=3,
        byzantine_workers=1, worker_attack="random",
    )  # fmt: skip
    first, second = models(attacked), models(attacked)
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, models(attacked.updated(seed=4)))


def test_honest_servers_hold_the_same_model():
    attacked = SMALL.updated(
        app="msmw", servers=4, byzantine_servers=1, server_attack="equivocate", steps=10
    )
    honest = models(attacked)[:3]
    spread = np.ptp(honest, axis=0).max()
    assert spread < 0.01 * np.abs(honest[0]).max()


def test_averaging_with_worker_momentum_is_sgd_with_momentum():
    """Plain SGD with momentum on the mean of all batches, written out, ends at the same model."""
    import torch

    from garfield.launch.assemble import Factory, new_adapter

    settings = SMALL.updated(app="vanilla", workers=3, steps=8)
    [mine] = models(settings)
    factory = Factory(settings, lambda optimizer: None, {})
    shares = [factory._batches(name, name) for name in settings.worker_names]
    adapter = new_adapter(settings, "torch", optimizer=False)
    optimizer = torch.optim.SGD(adapter.module.parameters(), lr=0.05, momentum=0.9)
    for step in range(8):
        gradients = np.empty((3, adapter.size), np.float32)
        for share, row in zip(shares, gradients, strict=True):
            adapter.gradient(share.batch(step), row)
        adapter._grad.copy_(torch.from_numpy(gradients.mean(axis=0)))
        optimizer.step()
    plain = np.empty(adapter.size, np.float32)
    adapter.read(plain)
    np.testing.assert_allclose(mine, plain, atol=1e-5)


def test_more_silent_workers_than_f_stop_the_run_and_are_named():
    stalled = SMALL.updated(
        byzantine_workers=2, f_workers=1, worker_attack="silence", gar="median", give_up_s=3.0
    )
    with pytest.raises(QuorumError, match=r"7 of 9 gradients for step 0 .*needs 8.*worker-7: no a"):
        simulate(stalled, lambda event: None)


def test_a_liar_is_named_with_what_it_did():
    events = []
    attacked = SMALL.updated(byzantine_workers=1, worker_attack="wrong-shape", steps=3)
    simulate(attacked, events.append)
    assert events[0]["silent"] == {
        "worker-8": {"reason": "wrong size", "detail": "sent 2405 numbers instead of 4810"}
    }
