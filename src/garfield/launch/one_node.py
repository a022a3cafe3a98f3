"""One node, built and run, whoever started it: a launcher here, or a cluster's operator."""

from __future__ import annotations

from collections.abc import Callable

from garfield.apps.settings import Settings
from garfield.core.events import Sink
from garfield.launch import program
from garfield.launch.assemble import Factory, new_adapter, settled
from garfield.launch.background_evaluator import Aside
from garfield.launch.reporters import WorkerReporter, account
from garfield.launch.server_checkpoints import Keeping
from garfield.nodes.server import Server
from garfield.nodes.worker import Worker
from garfield.transport.contract import Transport


def build(settings: Settings, name: str, transport: Transport, keeping: Keeping) -> Server | Worker:
    """The node of that name, serving, at the step where the run starts."""
    factory = _factory(settings)
    if name in settings.server_names:
        server = factory.server(name, transport)
        keeping.restore(server)
        return server
    worker = factory.worker(name, transport)
    worker.step = keeping.step
    return worker


def run_worker(
    worker: Worker, settings: Settings, tell: Sink, linger: Callable[[], object] = lambda: None
) -> None:
    """Until the last step, unless its servers are silent for too long, or it is told to stop.

    Then it may `linger`, for servers that are still to ask; what it has sent is told at the end.
    """
    reporter = WorkerReporter(tell, worker, total=settings.steps)

    def over() -> bool:
        reporter.after_step()
        return worker.step >= settings.steps

    try:
        worker.serve(over)
        linger()
    except SystemExit:
        reporter.tell()
        raise


def run_server(server: Server, settings: Settings, tell: Sink, keeping: Keeping) -> None:
    """Until its last step is done; one that is told to stop keeps what it has."""
    factory = _factory(settings)
    try:
        with Aside(lambda: factory.adapter(server.name, True), settings.timeout_s / 4) as aside:
            program.run_server(factory, server, tell, keeping, aside)
    except (SystemExit, KeyboardInterrupt):
        keeping.interrupted(server)
        raise
    tell({"event": "done", "node": server.name, "step": server.step, **account(server)})


def _factory(settings: Settings) -> Factory:
    return Factory(
        settled(settings),
        lambda name, optimizer: new_adapter(
            settings, settings.framework_of(name), optimizer=optimizer
        ),
        {"waits": settings.waits},
    )
