"""Run all nodes of a training run in this process, on a virtual clock.

Gradients are nearly all of the work, and each is a function of model and batch
alone: as many are computed at once as there are threads, each on one. torch's own
threads share a small gradient badly, and far worse on a machine that others use.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from garfield.adapters.alike import check_alike
from garfield.adapters.contract import Adapter, Batch, FlatVector
from garfield.apps.settings import Settings
from garfield.core.events import Event, Sink
from garfield.data.batches import Batches
from garfield.launch.adversary import Adversary
from garfield.launch.assemble import Factory, new_adapter, settled
from garfield.launch.node import run_server
from garfield.launch.node_checkpoints import NodeCheckpoints, WorkerCheckpoints
from garfield.nodes.server import Server
from garfield.nodes.worker import Worker
from garfield.report.filtering import all_of
from garfield.transport.contract import Transport
from garfield.transport.datagrams.wrapper import LossyTransport
from garfield.transport.simulated import SimulatedTransport, Simulation

T = TypeVar("T")


def simulate(
    settings: Settings,
    sink: Sink,
    *,
    checkpoints: NodeCheckpoints | None = None,
    threads: int = 1,
) -> dict[str, Server]:
    """Run all nodes to the end and return the servers; the first honest one reports to `sink`.

    So many `threads` compute gradients at once; the result is the same for any number.
    """
    settings = settled(settings.check())
    network = Simulation(threads, delay_s=Adversary(settings).delay_s)
    run = SimulatedRun(settings, sink, checkpoints or NodeCheckpoints(), network)
    try:
        run.simulation.run(until=run.finished)
    except KeyboardInterrupt:
        for server in run.servers.values():
            run.checkpoints.interrupted(server)
        for saved in run.workers_saved:
            saved.interrupted()
        raise
    return run.servers


class SimulatedRun:
    """All nodes, spawned and ready to go."""

    def __init__(
        self, settings: Settings, sink: Sink, checkpoints: NodeCheckpoints, simulation: Simulation
    ) -> None:
        self.settings, self.sink, self.checkpoints = settings, sink, checkpoints
        self.simulation = simulation
        self.servers: dict[str, Server] = {}
        self.workers: list[Worker] = []
        self.workers_saved: list[WorkerCheckpoints] = []
        self.transports: dict[str, SimulatedTransport] = {}
        self._work = _Work(simulation)
        self._honest = frozenset(settings.honest_servers)
        self._done: set[str] = set()
        self._shared: dict[str, list[Adapter]] = {}
        self._factory = Factory(
            settings,
            lambda name, optimizer: self._own(name) if optimizer else self._lent(name),
            {"waits": settings.rounds.waits, "clock": lambda: self.simulation.now_s},
            feed=_Later,
        )
        servers = dict.fromkeys(settings.server_names)
        for name in servers:
            self._add_server(name)
        for name in settings.worker_names:
            if name not in servers:  # else it is both
                self._add_worker(name)

    def finished(self) -> bool:
        return self._done.issuperset(self._honest)

    def _report(self, event: Event) -> None:
        """Pass an event on with the sums of all nodes, as they are one process here."""
        computing = {"computed": self._work.count, "compute_s": self._work.total_s}
        received = sum(transport.bytes_received for transport in self.transports.values())
        told = all_of([worker.event_fields() for worker in self.workers])
        traffic = {"bytes_sent": received, "bytes_received": received}
        self.sink({**event, **computing, **traffic, **told})

    def _add_server(self, name: str) -> None:
        server = self._factory.server(name, self._transport(name))
        self.checkpoints.restore(server)
        self.servers[name] = server
        self.simulation.spawn(lambda: self._run_server(server, self.checkpoints))

    def _add_worker(self, name: str) -> None:
        worker, saved = self._worker(name, self.checkpoints)
        self.workers.append(worker)
        self.workers_saved.append(saved)

        def over() -> bool:
            saved.between_steps()
            return self.finished()

        self.simulation.spawn(lambda: worker.serve(over))

    def _worker(self, name: str, checkpoints: NodeCheckpoints) -> tuple[Worker, WorkerCheckpoints]:
        worker = self._factory.worker(name, self._transport(name))
        worker.step = checkpoints.start.step
        every, total = self.settings.checkpoint_every, self.settings.steps
        return worker, WorkerCheckpoints(checkpoints, worker, self.sink, every=every, total=total)

    def _run_server(self, server: Server, checkpoints: NodeCheckpoints) -> None:
        reports = server.name == self.settings.honest_servers[0]
        run_server(self._factory, server, self._report if reports else None, checkpoints)
        self._done.add(server.name)

    def _transport(self, name: str) -> Transport:
        transport = self.transports[name] = self.simulation.transport(name)
        links = self.settings.lossy_links
        return transport if links is None else LossyTransport(transport, links)

    def _own(self, name: str) -> Adapter:
        adapter = new_adapter(self.settings, self.settings.framework_of(name), optimizer=True)
        return cast(Adapter, _Owned(adapter, self._work))

    def _lent(self, name: str) -> Adapter:
        """Lend a worker the models that all workers of a framework share: one for each thread."""
        framework = self.settings.framework_of(name)
        if framework not in self._shared:
            threads = range(self.simulation.threads)
            self._shared[framework] = [
                new_adapter(self.settings, framework, optimizer=False) for _ in threads
            ]
            check_alike({each: models[0].layout for each, models in self._shared.items()})
        return cast(Adapter, _Lent(self._shared[framework], self._work))


class _Work:
    """Computes gradients, and times them by the real clock: nodes here have a virtual one."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.count = 0
        self.total_s = 0.0

    def do(self, gradient: Callable[[], float]) -> float:
        """Compute a gradient beside other nodes' turns; its loss."""

        def timed() -> tuple[float, float]:
            started = time.perf_counter()
            loss = gradient()
            return loss, time.perf_counter() - started

        loss, took_s = self._first(timed) if not self.count else self._simulation.work(timed)
        self.total_s += took_s
        self.count += 1
        return loss

    def _first(self, work: Callable[[], T]) -> T:
        """A model that draws random numbers (dropout) draws them in turns from then on."""
        torch = sys.modules.get("torch")
        if torch is None:  # then there is no state of its to be drawn from
            return work()
        before = torch.get_rng_state()
        done = work()
        if not torch.equal(before, torch.get_rng_state()):
            self._simulation.work_in_turns()
        return done


class _Later:
    """Batches that are made where the gradient is computed: beside other nodes' turns."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def batch(self, step: int) -> Any:
        return partial(self._batches.batch, step)


class _Owned:
    """The adapter of a server's own model."""

    def __init__(self, adapter: Adapter, work: _Work) -> None:
        self._adapter, self._work = adapter, work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def gradient(self, batch: Callable[[], Batch], out: FlatVector) -> float:
        return self._work.do(lambda: self._adapter.gradient(batch(), out))


class _Lent:
    """The adapter of a worker: it takes one of the shared models while it computes."""

    def __init__(self, shared: list[Adapter], work: _Work) -> None:
        self._shared, self._work = shared, work
        self.size, self.tail = shared[0].size, shared[0].tail
        self.layout = shared[0].layout
        self._body: FlatVector | None = None
        self._tail: FlatVector | None = None

    def write(self, vector: FlatVector) -> None:
        self._body, self._tail = vector[: self.size], vector[self.size :]

    def write_body(self, body: FlatVector) -> None:
        self._body = body

    def write_tail(self, tail: FlatVector) -> None:
        self._tail = tail

    def gradient(self, batch: Callable[[], Batch], out: FlatVector) -> float:
        body, tail = self._body, self._tail
        assert body is not None  # a worker has got a model before it computes
        assert tail is not None

        def gradient() -> float:
            adapter = self._shared.pop()  # there are as many as threads
            try:
                adapter.write_body(body)
                adapter.write_tail(tail)
                return adapter.gradient(batch(), out)
            finally:
                self._shared.append(adapter)

        return self._work.do(gradient)
