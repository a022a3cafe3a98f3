"""The process of a `TimedClient`: it has one model, and is told by lines of JSON what to do.

    {"do": "plan", "stored_as": "uint8", "batch": 128}
        measures the link and both sides as a training would; answers the planner's situation
    {"do": "prepare", "stored_as": "uint8", "split": 3}
        puts the split's weights beside the store and asks for one piece: the server then knows it
    {"do": "time", "stored_as": "uint8", "batch": 128, "split": 3, "iterations": 2, …}
        trains: two iterations to warm up, then so many that count, and more until `least_s`;
        `chunk` samples at a time pass the frozen layers that run here (0: all)

Timing answers with `{"seconds": […], …}`, the processor's time of an iteration here (`busy_s`) and
what servers say of a piece (`server`) among the rest. It answers once more when what was still
under way has arrived: whoever reads may lift the limit of the link in between. Where iterations
take longer than `hopeless_s` on average, it says `{"overdue": true}` before: with the limit lifted
the one under way soon ends, and the answer is what one takes at least.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

import torch
from torch.nn import functional

from benchmarks.split_world import SplitWorld
from garfield.split.client.bandwidth import measure
from garfield.split.client.data_set import DataSet
from garfield.split.client.loader import Batch, SplitLoader
from garfield.split.client.planning import servers_load, situation
from garfield.split.client.servers import Servers, ServerSettings
from garfield.split.models import SPLIT_MODELS, load
from garfield.split.models.cutting import CutModel
from garfield.split.settings import Loading
from garfield.split.stores import StoreSettings

_TIMES_OVER = 12
"""How often an epoch visits each object, so that none ends while it is timed."""
_WARM_UP = 2
"""Iterations that do not count: of the second, much has come while the first was waited for."""
_STAGES = 3 + _WARM_UP - 1
"""Server, link and client: the first iteration passes them one after the other."""
_SLACK = 0.25
"""Of an iteration, that is no reason yet to give up."""


class Client:
    """Trains one model at any split, on images stored in any way."""

    def __init__(self, model: str, server: str) -> None:
        self._servers = Servers([server], ServerSettings(server_plain_http=True))
        self._data: dict[str, DataSet] = {}
        self._name = model
        self._model: CutModel | None = None
        self._talking = threading.Lock()

    def serve(self) -> None:
        """Do what the lines say, until there are no more."""
        for line in sys.stdin:
            asked = json.loads(line)
            do = {"plan": self.plan, "prepare": self.prepare, "time": self.time}[asked.pop("do")]
            self._tell(do(**asked))

    def plan(self, stored_as: str, batch: int) -> dict[str, Any]:
        """The situation of planners: sizes and times of both sides, and the measured link."""
        loader = self._loader(stored_as, batch, Loading(planner="predictive"))
        link, load = measure(self._servers.probe), servers_load(self._servers)
        return {"situation": asdict(situation(loader, link, load))}

    def prepare(self, stored_as: str, split: int) -> dict[str, Any]:
        """Let the server have the weights, and measure what it measures once."""
        loader = self._loader(stored_as, 1, Loading(split=split, prefetch_mb=1e-6))
        with closing(_batches(loader)) as batches:
            next(batches)
        return {}

    def time(
        self, stored_as: str, batch: int, split: int, chunk: int, **how: Any
    ) -> dict[str, Any]:
        """Train, and tell the seconds of each iteration that counts.

        So many pieces are asked for ahead as a batch has, and as can be under way at once: enough
        for the slowest side never to wait, few enough for the window to be full after one batch.
        """
        loader = self._loader(stored_as, batch, Loading(split=split))
        piece = loader.sampler.counts[0]
        depth = -(-batch // piece) + self._servers.connections
        ahead_mb = 4e-6 * piece * _values(loader) * (depth + 0.5)
        loading = Loading(split=split, prefetch_mb=ahead_mb, chunk=chunk)
        loader = self._loader(stored_as, batch, loading)
        with closing(_batches(loader)) as batches:
            timed = self._timed(loader, batches, **how)
            traffic = loader.traffic
            piece_bytes = traffic.received_bytes / max(1, traffic.requests)
            told = {"bytes_per_iteration": piece_bytes * batch / piece, "server": _served(loader)}
            self._tell(timed | told)
        return {}

    def _timed(
        self,
        loader: SplitLoader,
        batches: Iterator[Batch],
        iterations: int,
        least_s: float,
        hopeless_s: float | None,
    ) -> dict[str, Any]:
        trained = loader.tail.train().trained
        optimizer = torch.optim.SGD(trained.parameters(), 0.01, 0.9)
        warm_up_s: float | None = None
        seconds: list[float] = []
        began, busy, warm = time.monotonic(), 0.0, 0
        while len(seconds) < iterations or sum(seconds) < least_s:
            # the first pass all stages in turn; behind them the mean so far counts, with some
            # slack for a single one
            parts = _STAGES if warm_up_s is None else len(seconds) + 1 + _SLACK
            allowed = None if hopeless_s is None else parts * hopeless_s
            before = time.monotonic()
            with self._watched(allowed, before - began):
                _train_on(loader, optimizer, next(batches))
            now = time.monotonic()
            if allowed is not None and now - began > allowed:
                return {"warm_up_s": warm_up_s, "seconds": seconds, "at_least_s": hopeless_s}
            if warm_up_s is not None:
                seconds.append(now - before)
                continue
            warm += 1
            if warm == _WARM_UP:
                warm_up_s, began, busy = now - began, now, time.process_time()
        busy_s = (time.process_time() - busy) / len(seconds)
        return {"warm_up_s": warm_up_s, "seconds": seconds, "at_least_s": None, "busy_s": busy_s}

    @contextmanager
    def _watched(self, allowed: float | None, spent: float) -> Iterator[None]:
        """Say so if what is done here goes on beyond what is allowed in all."""
        if allowed is None:
            yield
            return
        timer = threading.Timer(max(0.0, allowed - spent), self._tell, [{"overdue": True}])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # so that nothing is said behind our answer

    def _loader(self, stored_as: str, batch: int, loading: Loading) -> SplitLoader:
        data = self._data.get(stored_as) or self._opened(stored_as)
        if self._model is None:
            weights = "pretrained" if SPLIT_MODELS[self._name].wheel else None
            self._model = load(self._name, weights, classes=len(data.classes), seed=0)
        return SplitLoader(data, self._model, self._servers, batch=batch, loading=loading)

    def _opened(self, stored_as: str) -> DataSet:
        """The images stored so, all objects many times over."""
        data = DataSet.open(SplitWorld.data(stored_as), StoreSettings(plain_http=True))
        again = replace(
            data, objects=data.objects * _TIMES_OVER, first_ids=data.first_ids * _TIMES_OVER
        )
        self._data[stored_as] = again
        return again

    def _tell(self, answer: dict[str, Any]) -> None:
        with self._talking:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def _batches(loader: SplitLoader) -> Any:
    """What the loader yields, as a generator that can be closed."""
    yield from loader


def _served(loader: SplitLoader) -> dict[str, float]:
    """Mean seconds that servers say to have spent on a piece, by what they did."""
    told = [each["seconds"] | {"waited": each["waited_s"]} for each in loader.told if each]
    return {what: fmean(each.get(what, 0.0) for each in told) for what in told[0]} if told else {}


def _values(loader: SplitLoader) -> int:
    """Numbers that travel for a sample."""
    shapes = [loader.input_shape, *(each.shape for each in loader.model.sizes(loader.input_shape))]
    return math.prod(shapes[loader.split])


def _train_on(loader: SplitLoader, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    features, labels = batch
    loss = functional.cross_entropy(loader.tail(features), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("server")
    given = parser.parse_args()
    torch.set_num_threads(1)
    Client(given.model, given.server).serve()
