"""Real gradients to show rules on: mnist_cnn learning Fashion-MNIST.

79,510 parameters, trained by plain SGD for a few dozen steps, so that gradients
point somewhere. Then every worker computes one on a batch of 32 of its own;
between two rounds the model makes one more step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from garfield.adapters.contract import SGD, Batch
from garfield.attacks import Attack
from garfield.core.errors import ConfigError
from garfield.core.types import Floats
from garfield.data import fashion_small
from garfield.models import build
from garfield.report.resilience import Round

WARM_UP = 50
"""Steps of SGD before the first round."""

_BATCH = 32
_WARM_UP_BATCH = 64
_LEARNING_RATE = 0.005  # early in its learning, gradients still point one way


def example_rounds(
    n: int, f: int, *, rounds: int = 5, attacks: Iterable[Attack] = (), seed: int = 0
) -> Iterator[Round]:
    """Gradients of n − f honest workers and f attackers, `rounds` times.

    `attacks` are asked for the labels they would train on, if they lie in the data.
    """
    if f < 1 or n - f < 2 or rounds < 1:
        raise ConfigError(
            "An example needs f >= 1 attackers, n >= f + 2 workers and at least 1 round, "
            f"got n={n}, f={f}, rounds={rounds}."
        )
    learner = _Learner(seed)
    for _ in range(WARM_UP):
        learner.step()
    liars = [attack for attack in attacks if attack.kind == "data"]
    for _ in range(rounds):
        honest = np.stack([learner.gradient(learner.batch(_BATCH)) for _ in range(n - f)])
        batches = [learner.batch(_BATCH) for _ in range(f)]
        own = np.stack([learner.gradient(batch) for batch in batches])
        yield Round(honest, own, {a.name: learner.poisoned(a, batches) for a in liars})
        learner.step()


class _Learner:
    """The model, its data, and one generator for all that is random."""

    def __init__(self, seed: int) -> None:
        data = fashion_small()
        module = build("mnist_cnn", classes=len(data.classes), seed=seed)
        from garfield.adapters.torch_adapter import TorchAdapter  # build has asked for torch

        self.model = TorchAdapter.with_sgd(module, SGD(_LEARNING_RATE))
        self.images, self.labels = data.images("train"), data.labels("train")
        self.classes = len(data.classes)
        self.rng = np.random.default_rng(seed)

    def batch(self, size: int) -> Batch:
        index = self.rng.choice(len(self.labels), size, replace=False)
        return self.images[index], self.labels[index]

    def gradient(self, batch: Batch) -> Floats:
        """(d,)"""
        found = np.empty(self.model.size, np.float32)
        self.model.gradient(batch, found)
        return found

    def poisoned(self, attack: Attack, batches: Iterable[Batch]) -> Floats:
        """(f, d) gradients on the labels that the attack makes of the true ones."""
        lies = [(images, attack.labels(labels, self.classes)) for images, labels in batches]
        return np.stack([self.gradient(lie) for lie in lies])

    def step(self) -> None:
        self.model.step(self.gradient(self.batch(_WARM_UP_BATCH)))
