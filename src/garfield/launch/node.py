"""Run one node of a training run, whoever started it: a supervisor here, or a cluster's operator.

run_node       builds the node on its transport, runs it to its last step, and lets it
               stay a while for slower peers
run_server     runs a server's part of the application; simulations call it as well
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from garfield.apps import Run
from garfield.apps.settings import Settings
from garfield.core.errors import DivergedError, QuorumError
from garfield.core.events import Sink
from garfield.launch.assemble import Factory, new_adapter, settled
from garfield.launch.background_evaluator import BackgroundEvaluator
from garfield.launch.reporters import ServerReporter, WorkerReporter, account
from garfield.launch.server_checkpoints import ServerCheckpoints
from garfield.nodes.server import Server
from garfield.nodes.worker import Worker
from garfield.transport.contract import Transport


@dataclass(frozen=True)
class NodeOptions:
    """What a node is given besides the settings of the run."""

    threads: int = 1
    checkpoints: ServerCheckpoints = field(default_factory=ServerCheckpoints)
    files: tuple[Path, ...] = ()
    """Python files of the user's, to be loaded first."""


def run_node(
    settings: Settings,
    name: str,
    transport: Transport,
    sink: Sink,
    checkpoints: ServerCheckpoints,
    *,
    listening: Callable[[Server | Worker], None],
    stay: Callable[[], object],
    patient: bool = False,
) -> None:
    """Build a node on its transport and run it to its end; QuorumError if its peers fail it.

    `listening` is called when it answers its peers, before its first step; `stay` after its
    last, for as long as slower peers may still want its last vector. With `patient` it starts
    over as long as nobody has answered at all: the others may be started later.
    """
    factory = _factory(settings)
    if name in settings.server_names:
        server = factory.server(name, transport)
        checkpoints.restore(server)
        node: Server | Worker = server
        run = partial(_run_server, factory, server, sink, checkpoints, stay)
    else:
        worker = factory.worker(name, transport)
        worker.step = checkpoints.start.step
        node = worker
        run = partial(_run_worker, worker, settings, sink, stay)
    listening(node)
    if patient:
        _patiently(run, node, settings, sink)
    else:
        run()


def run_server(
    factory: Factory,
    server: Server,
    sink: Sink | None,
    checkpoints: ServerCheckpoints,
    evaluator: BackgroundEvaluator | None = None,
) -> None:
    """Run the application's loop; a model that has diverged ends it, and is reported as such.

    Without a sink nothing is reported, and so nothing evaluated. Without an evaluator,
    evaluations are made in the server's own time, which may stand still for its peers too.
    """
    settings = factory.settings
    every = settings.evaluation.evaluate_every if server.name == settings.honest_servers[0] else 0
    reporter = None
    if sink is not None:
        reporter = ServerReporter(sink, every, total=settings.steps, evaluator=evaluator)

    def after_step(server: Server, run: Run[Any]) -> None:
        if reporter is not None:
            reporter.after_step(server, run)
        checkpoints.after_step(server, every=settings.checkpoint_every, total=settings.steps)

    try:
        settings.application.loop(server, factory.run(after_step))
    except DivergedError as failure:
        if sink is not None:
            accuracy, _ = server.evaluate()
            sink({
                "event": "diverged", "node": server.name, "step": server.step,
                "accuracy": accuracy, "error": str(failure),
            })  # fmt: skip


def _run_server(
    factory: Factory,
    server: Server,
    sink: Sink,
    checkpoints: ServerCheckpoints,
    stay: Callable[[], object],
) -> None:
    """Train, with evaluations in the background; a server that is told to stop is saved."""
    patience_s = factory.settings.rounds.timeout_s / 4
    try:
        with BackgroundEvaluator(lambda: factory.adapter(server.name, True), patience_s) as beside:
            run_server(factory, server, sink, checkpoints, beside)
    except (SystemExit, KeyboardInterrupt):
        checkpoints.interrupted(server)
        raise
    sink({"event": "done", "node": server.name, "step": server.step, **account(server)})
    stay()


def _run_worker(worker: Worker, settings: Settings, sink: Sink, stay: Callable[[], object]) -> None:
    """Serve gradients until the last step; a worker that is told to stop reports its sums."""
    reporter = WorkerReporter(sink, worker, total=settings.steps)

    def over() -> bool:
        reporter.after_step()
        return worker.step >= settings.steps

    try:
        worker.serve(over)
        sink({"event": "done", "node": worker.name, "step": worker.step})
        stay()
    except SystemExit:
        reporter.report()
        raise


def _patiently(
    run: Callable[[], None], node: Server | Worker, settings: Settings, sink: Sink
) -> None:
    """Run again as long as nobody has answered at all."""
    first = node.step
    while True:
        began = time.monotonic()
        try:
            return run()
        except QuorumError as shortage:
            waited = time.monotonic() - began >= settings.rounds.give_up_s
            if node.step > first or not waited:
                raise
            sink({"event": "waiting", "node": node.name, "error": str(shortage)})


def _factory(settings: Settings) -> Factory:
    return Factory(
        settled(settings),
        lambda name, optimizer: new_adapter(
            settings, settings.framework_of(name), optimizer=optimizer
        ),
        {"waits": settings.rounds.waits},
    )
