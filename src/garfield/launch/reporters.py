"""Reporters turn what nodes do into events.

A server reports every step, and an evaluation made in the background when it is done; a
worker now and then and after its last step. Sums (seconds, bytes, faults) run from the
node's start, so that its last event holds them all, also when the run was cut short.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from garfield.adapters.metrics import ACCURACY, Metric
from garfield.apps import Run
from garfield.core.events import Sink
from garfield.gars.variance import noise_to_signal, worth_measuring
from garfield.launch.background_evaluator import BackgroundEvaluator
from garfield.launch.evaluations import evaluation
from garfield.launch.unheard import UnheardWorkers
from garfield.nodes.node import Node
from garfield.nodes.server import Server
from garfield.nodes.worker import Worker

WORKERS_REPORT_EVERY_S = 1.0


class ServerReporter:
    """Turns a server's steps into events; evaluates now and then."""

    def __init__(
        self,
        sink: Sink,
        evaluate_every: int,
        *,
        total: int,
        evaluator: BackgroundEvaluator | None = None,
        liars: Collection[str] = (),
        metric: Metric = ACCURACY,
    ) -> None:
        """With `evaluator`, training goes on meanwhile, and results are reported when they are
        there; an evaluation that would have to wait for the one before is left out. `liars` are
        workers that are known to lie, as in an experiment; `metric` is what evaluations say."""
        self._sink, self._every, self._total = sink, evaluate_every, total
        self._metric = metric
        self._liars = frozenset(liars)
        self._evaluator = evaluator
        self._unheard = UnheardWorkers(self._liars)
        self._started = time.perf_counter()
        self._evaluation_s = 0.0
        self._computed = 0

    def after_step(self, server: Server, run: Run[Any]) -> None:
        """Report a step; called by the application's loop."""
        event: dict[str, Any] = {"event": "step", "node": server.name, "step": server.step}
        event["time_s"] = time.perf_counter() - self._started - self._evaluation_s
        event["communication_s"] = server.account.communication_s
        event["aggregation_s"] = run.aggregation_s
        event |= account(server) | self._computing(server) | _trust(server, run)
        event |= variance(server, run, self._liars)
        last = server.step >= self._total
        if last or (self._every and server.step % self._every == 0):
            began = time.perf_counter()
            if last or self._evaluator is None:
                event |= evaluation(self._metric, *server.evaluate())
            else:
                self._evaluate_beside(server, event["time_s"])
            self._evaluation_s += time.perf_counter() - began
        self._report_evaluated(patiently=last)
        self._sink(event)
        for warning in self._unheard.after_step(_used(server, run), server.workers):
            told = {"event": "unheard", "node": server.name, "step": server.step}
            self._sink({**told, "error": warning})

    def _evaluate_beside(self, server: Server, time_s: float) -> None:
        assert self._evaluator is not None
        if self._evaluator.busy():
            return
        self._report_evaluated()
        about = {"event": "evaluated", "node": server.name, "step": server.step, "time_s": time_s}
        self._evaluator.begin(server, about)

    def _report_evaluated(self, *, patiently: bool = False) -> None:
        event = None if self._evaluator is None else self._evaluator.result(patiently=patiently)
        if event is not None:
            self._sink(event)

    def _computing(self, server: Server) -> dict[str, Any]:
        """The gradients so far of a node that is worker and server at once."""
        if server.worker is None or not server.worker.compute_s:
            return {}
        self._computed += 1
        return {"computed": self._computed, "compute_s": server.worker.compute_s}


class WorkerReporter:
    """Reports how long a worker's gradients took, every second or so and after the last."""

    def __init__(self, sink: Sink, worker: Worker, *, total: int) -> None:
        self._sink, self._worker, self._total = sink, worker, total
        self._reported_at = time.monotonic()
        self._computed = 0
        self._compute_s = 0.0
        self._told_back = len(worker.went_back)

    def after_step(self) -> None:
        """Report if it is time to; called after every attempt at a step."""
        for before, step in self._worker.went_back[self._told_back :]:
            about = f"{self._worker.name} was at step {before}: its servers were started again."
            told = {"event": "went-back", "node": self._worker.name, "step": step}
            self._sink({**told, "error": f"{about} It goes back to step {step} with them."})
        self._told_back = len(self._worker.went_back)
        if self._worker.compute_s <= self._compute_s:
            return  # it came to nothing
        self._compute_s = self._worker.compute_s
        self._computed += 1
        last = self._worker.step >= self._total
        if last or time.monotonic() - self._reported_at >= WORKERS_REPORT_EVERY_S:
            self._reported_at = time.monotonic()
            self.report()

    def report(self) -> None:
        """Report the sums so far."""
        event = {"event": "worker", "node": self._worker.name, "step": self._worker.step}
        computing = {"computed": self._computed, "compute_s": self._compute_s}
        self._sink({**event, **computing, **account(self._worker), **self._worker.event_fields()})


def account(node: Node) -> dict[str, Any]:
    """What a node has sent and received, and who failed it, how often and why."""
    sums: dict[str, Any] = {
        "bytes_sent": node.transport.bytes_sent,
        "bytes_received": node.transport.bytes_received,
    }
    if faults := node.account.faults:
        sums["faults"] = {
            peer: {reason.value: fault._asdict() for reason, fault in of.items()}
            for peer, of in faults.items()
        }
    return sums


def _trust(server: Server, run: Run[Any]) -> dict[str, Any]:
    if run.explained is None or server.heard is None:
        return {}
    names, trusted = server.heard.names, run.explained.trusted
    filled = {name: float(holes.missing.mean()) for name, holes in server.heard.holes.items()}
    return {
        **({"filled": filled} if filled else {}),
        "gradients": sum(row is not None for row in server.heard.rows),
        "trusted": None if trusted is None else [names[i] for i in trusted],
        "set_aside": {names[i]: why for i, why in run.explained.set_aside.items()},
        "silent": {name: why.to_json() for name, why in server.heard.silent.items()},
    }


def _used(server: Server, run: Run[Any]) -> Collection[str] | None:
    """Whose gradients have a part in the last step; None where that is not known."""
    if run.explained is None or server.heard is None:
        return None
    names, trusted = server.heard.names, run.explained.trusted
    if trusted is not None:
        return {names[i] for i in trusted}
    aside = {names[i] for i in run.explained.set_aside}
    return {
        name for name, row in zip(names, server.heard.rows, strict=True)
        if row is not None and name not in aside
    }  # fmt: skip


def variance(server: Server, run: Run[Any], liars: Collection[str]) -> dict[str, Any]:
    """How much the gradients of a step vary beside their mean, and whether the rule bears it.

    Over the rows that the rule was given, less those of known liars. Liars that nobody knows of
    are among them: loud ones make the ratio large, but some could make it small.
    """
    if server.heard is None or run.explained is None or not run.joined:
        return {}
    heard, rows = server.heard, run.joined
    unfit = {*liars, *heard.holes, *(heard.names[i] for i in run.explained.set_aside)}
    honest = [
        row for name, row in zip(heard.names, rows, strict=True)
        if row is not None and name not in unfit
    ]  # fmt: skip
    if len(honest) < 2 or not worth_measuring(server.step, len(rows), server.model.size):
        return {}
    ratio = noise_to_signal(honest)
    n, f = len(rows), run.numbers.f_w
    delta = run.gar.variance_ratio(n, f) if n >= run.gar.needs(f) else None
    return {
        "variance_ratio": ratio,
        "variance_held": None if delta is None else delta * ratio < 1,
    }
