"""Classifiers by the same rounds: sampling, loads and weights know nothing of GANs.

    federation = simulated_classifier(classifier_for("mnist_cnn"), devices, settings=settings)
    for _ in range(20):
        record = federation.round()
    print(federation.accuracy(images, labels))

The server is the GAN's (`server.py`), with one network in its state instead of two: devices are
chosen so that the classes seen so far stay in proportion, and count less the more their classes
diverge from everybody's. With `sampling="random"` and `weighting="samples"` it is FedAvg (McMahan
et al., AISTATS 2017), and any rule of `garfield.gars` takes the mean's place (`gar`, `f`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from garfield.core.errors import ConfigError
from garfield.fedgan.assembling import refuse_missing_classes, server_of_state
from garfield.fedgan.averaging import State
from garfield.fedgan.device import DeviceData, Task, Update, drawing_from, stepped
from garfield.fedgan.load import drawn
from garfield.fedgan.server import FederatedServer, RoundRecord
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.simulation import declared
from garfield.models import build

_PREFIX = "classifier."
_BATCH = 1000


def momentum_sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """SGD with a learning rate of 0.05 and a momentum of 0.9, begun anew in every round."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


@dataclass(frozen=True)
class Classifier:
    """What a user brings: a network, its loss and optimizer."""

    network: Callable[[int], nn.Module]
    """Makes, from a seed, a network images (b, c, h, w) in [-1, 1] -> (b, classes) scores."""
    classes: int
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = momentum_sgd
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy
    """(scores, labels) -> a scalar to minimise."""


def classifier_for(name: str, *, classes: int = 10, channels: int | None = None) -> Classifier:
    """A model of `garfield.models` by its name, as in "mnist_cnn"."""
    return Classifier(
        lambda seed: build(name, classes=classes, channels=channels, seed=seed), classes
    )


class ClassifierTrainer:
    """A network to train on: a device's own, or one that all simulated devices share."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier
        self.network = classifier.network(0)

    def train(self, data: DeviceData, state: State, task: Task) -> Update:
        """Do the task, beginning from that state; both losses of the update are the last one."""
        load_classifier(self.network, state)
        self.network.train()
        optimizer = self.classifier.optimizer(self.network.parameters())
        batches = np.random.default_rng(task.seed)
        loss = torch.tensor(0.0)
        with drawing_from(task.seed):
            for _ in range(task.load.steps):
                images, labels = data.batch(drawn(len(data), task.load.batch, batches))
                loss = self.classifier.loss(self.network(images), labels)
                stepped(optimizer, loss)
        found = float(loss.detach())
        return Update(classifier_state(self.network), found, found)


class FederatedClassifier:
    """A server and its devices, all in this process."""

    def __init__(
        self, classifier: Classifier, devices: Sequence[DeviceData], server: FederatedServer
    ) -> None:
        self.classifier, self.devices, self.server = classifier, devices, server
        self._trainer = ClassifierTrainer(classifier)

    def round(self) -> RoundRecord:
        """Hold one round; both losses of its record are the classifier's."""
        plan = self.server.plan()
        updates = [
            self._trainer.train(self.devices[device], self.server.state, task)
            for device, task in zip(plan.devices, plan.tasks, strict=True)
        ]
        return self.server.finish(plan, updates)

    @property
    def network(self) -> nn.Module:
        """The network as the server has it now; written over by the next round."""
        load_classifier(self._trainer.network, self.server.state)
        return self._trainer.network

    @torch.no_grad()
    def accuracy(self, data: DeviceData) -> float:
        """The share of images whose class it names."""
        network = self.network.eval()
        right = 0
        for at in range(0, len(data), _BATCH):
            images, labels = data.batch(np.arange(at, min(at + _BATCH, len(data))))
            right += int((network(images).argmax(1) == labels).sum())
        return right / len(data)


def simulated_classifier(
    classifier: Classifier,
    devices: Sequence[DeviceData],
    *,
    settings: FedganSettings,
    class_names: Sequence[str] | None = None,
) -> FederatedClassifier:
    """A federation of these devices; of the settings, devices, rounds and the rule play a part."""
    _refuse_what_is_a_gans(settings)
    table = declared(devices, classifier.classes, settings, frozenset())
    refuse_missing_classes(table, settings, class_names)
    network = classifier.network(settings.training.seed)
    parameters = frozenset(_PREFIX + name for name, _ in network.named_parameters())
    server = server_of_state(classifier_state(network), parameters, table, settings)
    return FederatedClassifier(classifier, devices, server)


def classifier_state(network: nn.Module) -> State:
    """Copies of all parameters and buffers, as a server averages them."""
    return {_PREFIX + name: t.detach().clone() for name, t in network.state_dict().items()}


def load_classifier(network: nn.Module, state: State) -> None:
    """Copy parameters and buffers into the network."""
    network.load_state_dict({name.removeprefix(_PREFIX): t for name, t in state.items()})


def _refuse_what_is_a_gans(settings: FedganSettings) -> None:
    """What a classifier cannot have, or does not have yet, rather than silence about it."""
    refused = {
        "optimizer_state average": settings.training.optimizer_state == "average",
        "generator_every": settings.training.generator_every != 1,
        "devices that lie": settings.lies.lying > 0 and bool(
            settings.lies.attack or settings.lies.metadata_attack
        ),
        "a privacy budget": settings.privacy.dp_epsilon is not None,
        "clusters instead of labels": settings.population.clusters is not None,
    }  # fmt: skip
    for what, asked in refused.items():
        if asked:
            raise ConfigError(
                f"Federated classifiers know no {what}. Leave it out, or train a GAN."
            )
