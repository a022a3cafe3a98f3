"""Real gradients to show rules on: a small CNN learning Fashion-MNIST.

80,202 parameters, trained by plain SGD for a few dozen steps, so that gradients
point somewhere. Then every worker computes one on a batch of 32 of its own;
between two rounds the model makes one more step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from garfield.attacks import Attack
from garfield.core.errors import ConfigError, MissingDependency
from garfield.core.types import Floats
from garfield.data import fashion_small
from garfield.report.resilience import Round

if TYPE_CHECKING:
    import torch

WARM_UP = 50
"""Steps of SGD before the first round."""

_BATCH = 32
_WARM_UP_BATCH = 64
_LEARNING_RATE = 0.05


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
        honest = np.stack([learner.gradient(*learner.batch(_BATCH)) for _ in range(n - f)])
        batches = [learner.batch(_BATCH) for _ in range(f)]
        own = np.stack([learner.gradient(*batch) for batch in batches])
        yield Round(honest, own, {a.name: learner.poisoned(a, batches) for a in liars})
        learner.step()


class _Learner:
    """The model, its data, and one generator for all that is random."""

    def __init__(self, seed: int) -> None:
        torch = _torch()
        data = fashion_small()
        self.images = torch.from_numpy(data.x_train).float().div(255).sub(0.5).unsqueeze(1)
        self.labels = torch.from_numpy(data.y_train).long()
        self.classes = len(data.classes)
        self.rng = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):  # the caller's random state stays as it is
            torch.manual_seed(seed)
            self.model = _cnn(self.classes)

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        index = self.rng.choice(len(self.labels), size, replace=False)
        return self.images[index], self.labels[index]

    def gradient(self, images: torch.Tensor, labels: torch.Tensor) -> Floats:
        """(d,)"""
        torch = _torch()
        loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        parts = torch.autograd.grad(loss, list(self.model.parameters()))
        return torch.cat([part.reshape(-1) for part in parts]).numpy()  # type: ignore[no-any-return]

    def poisoned(self, attack: Attack, batches: Iterable[tuple[Any, Any]]) -> Floats:
        """(f, d) gradients on the labels that the attack makes of the true ones."""
        lies = [(images, attack.labels(labels, self.classes)) for images, labels in batches]
        return np.stack([self.gradient(images, labels) for images, labels in lies])

    def step(self) -> None:
        torch = _torch()
        update = torch.from_numpy(self.gradient(*self.batch(_WARM_UP_BATCH)))
        with torch.no_grad():
            vector = torch.nn.utils.parameters_to_vector(self.model.parameters())
            vector -= _LEARNING_RATE * update
            torch.nn.utils.vector_to_parameters(vector, self.model.parameters())


def _cnn(classes: int) -> torch.nn.Module:
    nn = _torch().nn
    return nn.Sequential(  # type: ignore[no-any-return]
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2),  # (16, 12, 12)
        nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),  # (32, 4, 4)
        nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, classes),
    )  # fmt: skip


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingDependency(
            "Example gradients come from a torch model, and torch is not installed. "
            "Install it with: pip install 'garfield[torch]'"
        ) from None
    return torch
