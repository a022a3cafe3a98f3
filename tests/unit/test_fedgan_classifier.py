"""Classifiers trained by the rounds, the sampling and the weights of federated GANs."""

import numpy as np
import pytest
import torch

from garfield.core.config import made
from garfield.core.errors import BoundError, ConfigError
from garfield.data import fashion_small
from garfield.fedgan.averaging import WeightedMean
from garfield.fedgan.classifier import (
    Classifier,
    ClassifierTrainer,
    classifier_for,
    classifier_state,
    simulated_classifier,
)
from garfield.fedgan.device import DeviceData
from garfield.fedgan.networks import gan_for
from garfield.fedgan.partition import divided, skewed
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.simulation import simulated

CLOTHES = fashion_small()
SMALL = Classifier(
    lambda seed: _seeded(seed), classes=10, optimizer=lambda p: torch.optim.SGD(p, lr=0.1)
)


def _seeded(seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(784, 10), torch.nn.BatchNorm1d(10)
        )


def clothes(split="train"):
    images = torch.tensor(CLOTHES.pixels(split)).unsqueeze(1)
    return images, torch.tensor(CLOTHES.labels(split))


def population(devices=12, seed=2):
    images, labels = clothes()
    rng = np.random.default_rng(seed)
    shares = skewed(labels, devices=devices, max_class=4, max_samples=150, rng=rng)
    return [DeviceData(images, labels, share) for share in shares]


def settings(**given):
    base = {"fraction": 0.34, "local_steps": 8, "batch": 32, "missing_classes": "allow"}
    return made(FedganSettings, base | given)


@pytest.mark.slow
def test_mnist_cnn_learns_clothes_that_are_divided_among_devices():
    images, labels = clothes()
    shares = divided(
        "dirichlet(alpha=1)", labels.numpy(), devices=10, max_class=1, max_samples=1,
        rng=np.random.default_rng(3),
    )  # fmt: skip
    federation = simulated_classifier(
        classifier_for("mnist_cnn"), [DeviceData(images, labels, share) for share in shares],
        settings=settings(fraction=0.3, local_steps=10), class_names=CLOTHES.classes,
    )  # fmt: skip
    held_out = DeviceData(*clothes("test"))
    before = federation.accuracy(held_out)
    records = [federation.round() for _ in range(5)]
    assert before < 0.25
    assert federation.accuracy(held_out) > 0.55
    assert records[-1].generator_loss == records[-1].discriminator_loss > 0


@pytest.mark.slow
@pytest.mark.parametrize("weighting", ["kl", "samples"])
@pytest.mark.parametrize("sampling", ["balanced", "random"])
def test_devices_and_weights_are_those_of_a_gan_on_the_same_data(sampling, weighting):
    chosen = settings(
        sampling=sampling, weighting=weighting, local_steps=1, batch=4, weak_devices=0.5
    )
    devices = population()
    gan = simulated(
        gan_for("lsgan(width=0.0625)", (1, 28, 28)), devices, classes=10, settings=chosen
    )
    classifier = simulated_classifier(SMALL, devices, settings=chosen)
    for _ in range(4):
        a, b = gan.round(), classifier.round()
        assert (a.asked, a.weights, a.seen, a.kl_seen) == (b.asked, b.weights, b.seen, b.kl_seen)
        assert a.samples == b.samples


def test_a_round_is_the_weighted_mean_of_what_its_devices_learned_buffers_included():
    federation = simulated_classifier(SMALL, population(), settings=settings())
    plan, before = federation.server.plan(), dict(federation.server.state)
    mean = WeightedMean()
    record = federation.round()
    trainer = ClassifierTrainer(SMALL)
    for device, task, weight in zip(plan.devices, plan.tasks, record.weights, strict=True):
        mean.add(trainer.train(federation.devices[device], before, task).state, weight)
    expected = mean.mean()
    assert "classifier.2.running_var" in expected
    for name, tensor in federation.server.state.items():
        assert torch.equal(tensor, expected[name]), name


def test_same_seed_same_bits():
    def state(seed):
        federation = simulated_classifier(SMALL, population(), settings=settings(seed=seed))
        federation.round()
        return federation.server.state

    first, again, other = state(1), state(1), state(2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["classifier.1.weight"], other["classifier.1.weight"])
    assert first.keys() == classifier_state(SMALL.network(0)).keys()


def test_a_rule_may_take_the_place_of_the_mean_and_its_bound_is_checked():
    federation = simulated_classifier(
        SMALL, population(), settings=settings(gar="median", f=1, fraction=0.5)
    )
    assert len(federation.round().took_part) == 6
    with pytest.raises(BoundError, match="krum needs n >= 9"):
        simulated_classifier(SMALL, population(), settings=settings(gar="krum", f=3, fraction=0.5))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"optimizer_state": "average"}, "optimizer_state average"),
        ({"generator_every": 2}, "generator_every"),
        ({"attack": "reverse", "liars": 1}, "devices that lie"),
        ({"dp_epsilon": 8.0}, "a privacy budget"),
        ({"clusters": 4}, "clusters instead of labels"),
    ],
)
def test_what_a_classifier_does_not_have_is_refused(given, what):
    with pytest.raises(ConfigError, match=f"Federated classifiers know no {what}"):
        simulated_classifier(SMALL, population(), settings=settings(**given))
