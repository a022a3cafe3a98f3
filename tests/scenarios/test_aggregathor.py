"""AggregaThor's claim: behind lossy links it learns, where averaging does not."""

import numpy as np
import pytest

from garfield.apps.settings import Settings
from garfield.launch.simulate import simulate
from tests.marks import heavy_but

DIGITS = Settings().updated(
    app="aggregathor", model="digits_mlp", data="digits", workers=19, lossy_workers=8, loss=0.1,
    steps=25, evaluate_every=0, timeout_s=1.0, give_up_s=5.0,
)  # fmt: skip
IMAGES = DIGITS.updated(model="mnist_cnn", data="fashion-small", steps=20, batch=16)
"""Large enough that at a tenth every gradient of a lossy worker is damaged: 39 datagrams."""


LEARNT = 0.8  # chance is 0.1; 25 honest steps reach 0.9


def last_event(settings):
    events = []
    simulate(settings, events.append)
    return events[-1]


def accuracy(settings):
    return last_event(settings)["accuracy"]


def models(settings):
    server = simulate(settings, lambda event: None)["server-0"]
    vector = np.empty(server.model.size + server.model.tail, np.float32)
    server.model.read(vector)
    return vector


@pytest.mark.heavy
def test_with_8_of_19_workers_behind_10_percent_loss_it_learns():
    assert accuracy(IMAGES) > 0.45  # chance is 0.1; without loss it is 0.6 by then


@pytest.mark.slow
def test_averaging_does_not_if_what_is_lost_is_filled_with_random_values():
    assert accuracy(IMAGES.updated(gar="average")) < 0.2


@pytest.mark.heavy
def test_averaging_does_if_what_is_lost_is_left_at_zero():
    """It is the filling that leads averaging astray, not the loss."""
    assert accuracy(IMAGES.updated(gar="average", fill="zeros")) > 0.45


@pytest.mark.parametrize("loss", heavy_but([0.0, 0.01, 0.1, 0.3], 0.1))
@pytest.mark.parametrize("fill", ["random", "zeros", "last"])
def test_it_learns_at_every_loss_with_every_filling(loss, fill):
    assert accuracy(DIGITS.updated(loss=loss, fill=fill)) > LEARNT


@pytest.mark.parametrize("gar", ["median", "trimmed-mean", "meamed"])
def test_with_a_mask_as_many_may_lie_as_if_nothing_were_lost(gar):
    attacked = DIGITS.updated(
        fill="mask", gar=gar, loss=0.3, byzantine_workers=5, worker_attack="reverse"
    )
    assert attacked.numbers.f_w == 5
    assert accuracy(attacked) > LEARNT


@pytest.mark.parametrize("attack", ["reverse", "little-is-enough", "silence", "equivocate"])
def test_liars_and_lossy_links_together_are_survived(attack):
    mixed = DIGITS.updated(lossy_workers=5, byzantine_workers=3, worker_attack=attack)
    assert accuracy(mixed) > LEARNT


def test_bulyan_learns_with_as_many_as_it_bears():
    assert accuracy(DIGITS.updated(gar="bulyan(m=3)", lossy_workers=2, byzantine_workers=2,
                                   worker_attack="reverse")) > LEARNT  # fmt: skip


@pytest.mark.parametrize("fill", ["random", "last"])
def test_models_may_be_lost_on_the_way_too(fill):
    assert accuracy(DIGITS.updated(lossy_models=True, fill=fill)) > LEARNT


def test_the_same_seed_loses_the_same_and_gives_the_same_model():
    short = DIGITS.updated(steps=8, gar="average")  # every row counts
    np.testing.assert_array_equal(models(short), models(short))
    assert not np.array_equal(models(short), models(short.updated(seed=1)))


def test_without_loss_it_is_ssmw():
    reliable = DIGITS.updated(lossy_workers=0, loss=0.0, f_workers=8, steps=8)
    np.testing.assert_array_equal(models(reliable), models(DIGITS.updated(loss=0.0, steps=8)))
    np.testing.assert_array_equal(
        models(reliable), models(reliable.updated(app="ssmw", gar="multi-krum"))
    )
