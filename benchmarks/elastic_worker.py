"""A worker of `elastic_rescale` and what it trains: a script as a user would write it.

It writes a line when a step was taken, with the machine's clock, which all processes share. Started
by itself, by a controller or by torchrun, it is the same script.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import TensorDataset

WIDTHS = {
    "1.3 M": (784, 1024, 480, 10),
    "20 M": (784, 2048, 4096, 2048, 768, 10),
}
"""Layers of the networks, by their number of parameters."""
BATCH = 16


def network(size: str) -> nn.Module:
    """A perceptron with so many parameters."""
    from itertools import pairwise

    from torch import nn

    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(WIDTHS[size]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def images() -> TensorDataset:
    """The Fashion-MNIST that is shipped."""
    import torch
    from torch.utils.data import TensorDataset

    from garfield.data import load

    data = load("fashion-small")
    return TensorDataset(
        torch.from_numpy(data.images("train")), torch.from_numpy(data.labels("train"))
    )


def train(record: Path, size: str, options: dict[str, Any]) -> None:
    """Train until told to leave."""
    import torch
    from torch.nn.functional import cross_entropy

    from garfield.elastic.job import ElasticOptions, ElasticTraining

    torch.set_num_threads(1)
    model = network(size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    with (
        record.open("a", buffering=1) as file,
        ElasticTraining(model, optimizer, images(), ElasticOptions(batch=BATCH, **options)) as job,
    ):
        for _ in job.epochs(10**9):
            for x, y in job.batches():
                with job.step():
                    job.backward(cross_entropy(job.model(x), y))
                if job.stepped:
                    line = {
                        "time": time.monotonic(), "pid": os.getpid(), "rank": job.rank,
                        "workers": job.workers, "generation": job.generation,
                        "step": job.step_number,
                    }  # fmt: skip
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    train(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
