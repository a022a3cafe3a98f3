"""Run all nodes of a training run in this process, on a virtual clock."""

from __future__ import annotations

import time
from typing import Any, cast

from garfield.adapters.contract import Adapter, Batch, FlatVector
from garfield.launch.assemble import Factory, torch_adapter
from garfield.launch.checkpoint import Keeping
from garfield.launch.events import Event, Sink
from garfield.launch.program import run_server
from garfield.launch.settings import Settings
from garfield.nodes.server import Server
from garfield.transport.simulated import SimulatedTransport, Simulation


def simulate(
    settings: Settings, sink: Sink, *, keeping: Keeping | None = None
) -> dict[str, Server]:
    """The servers of a finished run, by name; the first honest one's steps go to `sink`."""
    run = _Simulated(settings.check(), sink, keeping or Keeping())
    try:
        run.simulation.run(until=run.finished)
    except KeyboardInterrupt:
        for server in run.servers.values():
            run.keeping.interrupted(server)
        raise
    return run.servers


class _Simulated:
    """All nodes, spawned and ready to go."""

    def __init__(self, settings: Settings, sink: Sink, keeping: Keeping) -> None:
        self.settings, self.sink, self.keeping = settings, sink, keeping
        self.simulation = Simulation()
        self.servers: dict[str, Server] = {}
        self.transports: dict[str, SimulatedTransport] = {}
        self._stopwatch = _Stopwatch()
        self._done: set[str] = set()
        shared = self._adapter(optimizer=False)  # one module serves all workers in turn
        self._factory = Factory(
            settings,
            lambda optimizer: self._adapter(optimizer=True) if optimizer else shared,
            {"waits": settings.waits, "clock": lambda: self.simulation.now_s},
        )
        for name in settings.server_names:
            self._add_server(name)
        if not settings.application.peers:
            for name in settings.worker_names:
                self._add_worker(name)

    def finished(self) -> bool:
        return self._done.issuperset(self.settings.honest_servers)

    def _tell(self, event: Event) -> None:
        """With the sums of all nodes: here, they are one."""
        computing = {"computed": self._stopwatch.count, "compute_s": self._stopwatch.total_s}
        received = sum(transport.bytes_received for transport in self.transports.values())
        self.sink({**event, **computing, "bytes_sent": received, "bytes_received": received})

    def _add_server(self, name: str) -> None:
        server = self._factory.server(name, self._transport(name))
        self.keeping.restore(server)
        self.servers[name] = server
        self.simulation.spawn(lambda: self._run_server(server))

    def _add_worker(self, name: str) -> None:
        worker = self._factory.worker(name, self._transport(name))
        worker.step = self.keeping.step
        self.simulation.spawn(lambda: worker.serve(self.finished))

    def _run_server(self, server: Server) -> None:
        tells = server.name == self.settings.honest_servers[0]
        run_server(self._factory, server, self._tell if tells else None, self.keeping)
        self._done.add(server.name)

    def _transport(self, name: str) -> SimulatedTransport:
        self.transports[name] = self.simulation.transport(name)
        return self.transports[name]

    def _adapter(self, *, optimizer: bool) -> Adapter:
        adapter = torch_adapter(self.settings, optimizer=optimizer)
        return cast(Adapter, _Timed(adapter, self._stopwatch))


class _Stopwatch:
    count = 0
    total_s = 0.0


class _Timed:
    """An adapter whose gradients are timed by the real clock: nodes here have a virtual one."""

    def __init__(self, adapter: Adapter, stopwatch: _Stopwatch) -> None:
        self._adapter, self._stopwatch = adapter, stopwatch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def gradient(self, batch: Batch, out: FlatVector) -> float:
        started = time.perf_counter()
        loss = self._adapter.gradient(batch, out)
        self._stopwatch.total_s += time.perf_counter() - started
        self._stopwatch.count += 1
        return loss
