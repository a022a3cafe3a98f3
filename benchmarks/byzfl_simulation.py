"""ByzFL's simulation, step by step, in ByzFL's own environment.

The loop is that of ByzFL's own `benchmark/train.py` (DSGD), made of its Client,
Server and ByzantineClient, without evaluation. Only honest clients compute
gradients there, n − f of them. Images come as that program has them, from a data
set of torchvision's that transforms every image anew ("torchvision"), or lie in
memory ready for the model ("tensors"), which is faster.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache
from typing import Any

from benchmarks.byzfl_worker import byzfl_part
from benchmarks.workers import serve

ATTACKS = {  # ours: theirs
    "sign-flip": ("SignFlipping", {}),
    "little-is-enough": ("ALittleIsEnough", {"tau": 1.0}),
    "fall-of-empires": ("InnerProductManipulation", {"tau": 0.1}),
}
RULES = {"trimmed-mean": "TrMean", "multi-krum": "MultiKrum", "median": "Median"}
IMAGES = 60_000
DECAY = {"weight_decay": 0.0, "milestones": [], "learning_rate_decay": 1.0}


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each of the next steps, and of all cores for all of them."""
    steps = job.pop("steps")
    training = _training(**job)
    times, began_cpu = [], time.process_time()
    for _ in range(steps):
        began = time.perf_counter()
        training.step()
        times.append(time.perf_counter() - began)
    return {"times_s": times, "cpu_s": time.process_time() - began_cpu}


class Training:
    """One run, always ready for its next step."""

    def __init__(self, n: int, f: int, batch: int, rule: str, attack: str, images: str) -> None:
        framework = byzfl_part("fed_framework")
        framework.models.mnist_cnn = _mnist_cnn
        shared = {"model_name": "mnist_cnn", "device": "cpu", "optimizer_name": "SGD", **DECAY}
        shared |= {"learning_rate": 0.05, "loss_name": "CrossEntropyLoss"}
        loaders = _loaders(framework, n - f, batch, images)
        self.clients = [
            framework.Client({
                **shared, "training_dataloader": loader, "momentum": 0.9, "nb_labels": 10,
                "LabelFlipping": False, "store_per_client_metrics": False,
            })
            for loader in loaders
        ]  # fmt: skip
        aggregator = {"name": RULES[rule], "parameters": {"f": f}}
        self.server = framework.Server({
            **shared, "test_loader": loaders[0], "aggregator_info": aggregator, "pre_agg_list": [],
        })  # fmt: skip
        name, parameters = ATTACKS[attack]
        lie = {"name": name, "f": f, "parameters": parameters}
        self.liar = framework.ByzantineClient(lie)
        self._send()

    def step(self) -> None:
        for client in self.clients:
            client.compute_gradients()
        honest = [client.get_flat_gradients_with_momentum() for client in self.clients]
        self.server.update_model_with_gradients(honest + self.liar.apply_attack(honest))
        self._send()

    def _send(self) -> None:
        model = self.server.get_dict_parameters()
        for client in self.clients:
            client.set_model_state(model)


@lru_cache(maxsize=2)
def _training(**job: Any) -> Training:
    return Training(**job)


def _mnist_cnn() -> Any:
    """The function of garfield.models.mnist_cnn, in the usual order of layers; ours pools before
    it rectifies and lays channels last, to the same result. garfield is not installed here."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 25, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(25, 25, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(625, 100), nn.ReLU(), nn.Linear(100, 10),
    )  # fmt: skip


def _loaders(framework: Any, honest: int, batch: int, images: str) -> Any:
    """Random images, dealt by ByzFL itself: what they show takes no time."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (IMAGES, 28, 28), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 10, (IMAGES,), generator=generator)
    dataset: Any
    if images == "torchvision":
        dataset = _of_torchvision(pixels, labels)
    else:
        dataset = TensorDataset(pixels.unsqueeze(1) / 255, labels)
        dataset.targets = labels  # where ByzFL looks for them
    return framework.DataDistributor({
        "data_distribution_name": "iid", "distribution_parameter": 0.0, "nb_honest": honest,
        "data_loader": DataLoader(dataset), "batch_size": batch,
    }).split_data()  # fmt: skip


def _of_torchvision(pixels: Any, labels: Any) -> Any:
    """torchvision's own data set around our pixels, with ByzFL's transforms for MNIST."""
    _define_what_torchvision_lacks()
    from torchvision import datasets, transforms

    dataset = datasets.MNIST.__new__(datasets.MNIST)
    dataset.data, dataset.targets, dataset.target_transform = pixels, labels, None
    dataset.transform = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))]
    )
    return dataset


@lru_cache(maxsize=1)
def _define_what_torchvision_lacks() -> Any:
    """Two operators: its wheel comes without them where there is no GPU."""
    import torch

    missing = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        missing.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return missing


if __name__ == "__main__":
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    serve(answer)
