"""One node, built and run, whoever started it: a launcher here, or a cluster's operator."""

from __future__ import annotations

from garfield.launch import program
from garfield.launch.assemble import Factory, torch_adapter
from garfield.launch.checkpoint import Keeping
from garfield.launch.events import Sink, WorkerReporter, account
from garfield.launch.settings import Settings
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


def use_threads(count: int) -> None:
    """So that the nodes of one machine do not fight over its cores."""
    import torch

    from garfield.kernels import set_threads

    torch.set_num_threads(count)
    set_threads(count)


def run_worker(worker: Worker, settings: Settings, tell: Sink) -> None:
    """Until its servers have been silent for too long, or it is told to stop."""
    reporter = WorkerReporter(tell, worker, total=settings.steps)

    def never() -> bool:
        reporter.after_step()
        return False

    try:
        worker.serve(never)
    except SystemExit:
        reporter.tell()
        raise


def run_server(server: Server, settings: Settings, tell: Sink, keeping: Keeping) -> None:
    """Until its last step is done; one that is told to stop keeps what it has."""
    try:
        program.run_server(_factory(settings), server, tell, keeping)
    except (SystemExit, KeyboardInterrupt):
        keeping.interrupted(server)
        raise
    tell({"event": "done", "node": server.name, "step": server.step, **account(server)})


def _factory(settings: Settings) -> Factory:
    return Factory(
        settings,
        lambda optimizer: torch_adapter(settings, optimizer=optimizer),
        {"waits": settings.waits},
    )
