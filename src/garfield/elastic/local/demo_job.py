"""The script of the demonstration's jobs: a small convolutional network learns the digits.

    python -m garfield.elastic.local.demo_job --epochs 40 --width 32

It is an ordinary training loop in the few lines that make it elastic (docs/elastic-jobs.md).
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch import nn
from torch.utils.data import TensorDataset

from garfield.data import load
from garfield.elastic.job import ElasticOptions, ElasticTraining


def network(width: int) -> nn.Module:
    """Few parameters and much to compute: what workers exchange is small."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 10),
    )  # fmt: skip


def main() -> None:
    """Train for so many epochs, and tell the accuracy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.manual_seed(asked.seed)
    digits = load("digits")
    images, labels = (
        torch.from_numpy(digits.images("train")).reshape(-1, 1, 8, 8),
        torch.from_numpy(digits.labels("train")),
    )
    model = network(asked.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    options = ElasticOptions(seed=asked.seed, learning_rate="none", checkpoint_every=50)
    with ElasticTraining(model, optimizer, TensorDataset(images, labels), options) as job:
        for epoch in job.epochs(asked.epochs):
            for x, y in job.batches():
                with job.step():
                    job.backward(loss_of(job.model(x), y))
            _say(
                f"epoch {epoch}: {job.workers} workers, batch {job.batch}, {job.step_number} steps"
            )
        if not job.left and job.rank == 0:
            _say(f"accuracy {_accuracy(model, digits):.3f}")


def _accuracy(model: nn.Module, digits: object) -> float:
    images = torch.from_numpy(digits.images("test")).reshape(-1, 1, 8, 8)  # type: ignore[attr-defined]
    labels = torch.from_numpy(digits.labels("test"))  # type: ignore[attr-defined]
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
