"""The gradients of one simulated step by torch alone: what no simulation on it can go below.

Nothing but forward and backward passes of `mnist_cnn` on batches that lie ready, each worker's
gradient left in a vector of its own: no momentum, no rule, no attack, no network. In a process of
its own, asked by `benchmarks/simulation.py`, four ways:

    side by side    one thread a gradient, as many at once as there are cores; so does simulation
    one by one      all cores on each gradient
    one batch       all workers' images as one batch: one gradient in all, so no robust step
    compiled        side by side, forward and backward compiled by `torch.compile`
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.workers import serve
from garfield.models.mnist_cnn import mnist_cnn
from garfield.runs.process import keep_heap

WAYS = ("side by side", "one by one", "one batch", "compiled")
Forward = Callable[[Tensor, Tensor], Tensor]
"""The loss of images and labels."""


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each of some steps' gradients, of all cores, and how far compiling moves them."""
    gradients = _gradients(job["way"], job["n"], job["batch"])
    times, began_cpu = [], time.process_time()
    for _ in range(job["steps"]):
        began = time.perf_counter()
        gradients.all()
        times.append(time.perf_counter() - began)
    cpu_s = time.process_time() - began_cpu
    return {"times_s": times, "cpu_s": cpu_s, "differs": gradients.differs()}


class Gradients:
    """Those of n workers, computed one way."""

    def __init__(self, way: str, n: int, batch: int) -> None:
        self._way = way
        generator = torch.Generator().manual_seed(0)
        self._batches = [
            (torch.rand(batch, 1, 28, 28, generator=generator),
             torch.randint(0, 10, (batch,), generator=generator))
            for _ in range(n)
        ]  # fmt: skip
        if way == "one batch":
            images, labels = zip(*self._batches, strict=True)
            self._batches = [(torch.cat(images), torch.cat(labels))]
        at_once = _cores() if way in ("side by side", "compiled") else 1
        self._threads = 1 if at_once > 1 else _cores()
        self._modules = [_module() for _ in range(at_once)]
        self._losses = [_loss_of(module, compiled=way == "compiled") for module in self._modules]
        self._pool = ThreadPoolExecutor(at_once)
        size = sum(p.numel() for p in self._modules[0].parameters())
        self._rows = torch.empty(len(self._batches), size)

    def all(self) -> Tensor:
        """Each worker's gradient, a row each."""
        count, at_once = len(self._batches), len(self._modules)
        shares = [range(place, count, at_once) for place in range(at_once)]
        list(self._pool.map(self._some, range(at_once), shares))
        return self._rows

    def differs(self) -> float:
        """The largest difference to the same gradients, not compiled, over the largest of them."""
        if self._way != "compiled":
            return 0.0
        compiled = self.all().clone()
        plain = [_loss_of(module, compiled=False) for module in self._modules]
        self._losses, kept = plain, self._losses
        largest = float(self.all().abs().max())
        gap = float((compiled - self._rows).abs().max())
        self._losses = kept
        return gap / largest

    def _some(self, place: int, workers: Sequence[int]) -> None:
        torch.set_num_threads(self._threads)  # a thread's own setting
        parameters = list(self._modules[place].parameters())
        for worker in workers:
            loss = self._losses[place](*self._batches[worker])
            found = torch.autograd.grad(loss, parameters)
            torch.cat([each.reshape(-1) for each in found], out=self._rows[worker])


def _module() -> nn.Module:
    torch.manual_seed(1)
    return mnist_cnn().train()


def _loss_of(module: nn.Module, *, compiled: bool) -> Forward:
    def loss(images: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(module(images), labels)

    return torch.compile(loss) if compiled else loss


@lru_cache(maxsize=len(WAYS))
def _gradients(way: str, n: int, batch: int) -> Gradients:
    made = Gradients(way, n, batch)
    made.all()  # what is allocated and compiled once
    return made


def _cores() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    keep_heap()  # as simulation does
    serve(answer)
