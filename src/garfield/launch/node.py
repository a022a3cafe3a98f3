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
from typing import Any, TypeAlias

from garfield.apps import Run
from garfield.apps.groups import NONE
from garfield.apps.settings import Settings
from garfield.core.errors import DivergedError, QuorumError
from garfield.core.events import Event, Sink
from garfield.launch.assemble import Factory, metric_of, new_adapter, settled
from garfield.launch.background_evaluator import BackgroundEvaluator
from garfield.launch.evaluations import evaluation
from garfield.launch.node_checkpoints import NodeCheckpoints, WorkerCheckpoints
from garfield.launch.reporters import ServerReporter, WorkerReporter, account
from garfield.nodes.server import Server
from garfield.nodes.worker import Worker
from garfield.transport.contract import Transport

Stay: TypeAlias = Callable[[Server | Worker], object]
"""What a node does after its last step, for as long as slower peers may want its last vector."""


@dataclass(frozen=True)
class NodeOptions:
    """What a node is given besides the settings of the run."""

    threads: int = 1
    checkpoints: NodeCheckpoints = field(default_factory=NodeCheckpoints)
    files: tuple[Path, ...] = ()
    """Python files of the user's, to be loaded first."""


def run_node(
    settings: Settings,
    name: str,
    transport: Transport,
    sink: Sink,
    checkpoints: NodeCheckpoints,
    *,
    listening: Callable[[Server | Worker], None],
    stay: Stay,
    patient: bool = False,
) -> None:
    """Build a node on its transport and run it to its end; QuorumError if its peers fail it.

    `listening` is called when it answers its peers, before its first step; `stay` after its
    last, for as long as slower peers may still want its last vector. With `patient` it starts
    over as long as nobody has answered at all: the others may be started later. Workers wait for
    their servers to be started again, for as long as the settings say.
    """
    factory = _factory(settings, secret=patient)
    if name in settings.server_names:
        server = factory.server(name, transport)
        checkpoints.restore(server)
        node: Server | Worker = server
        run = partial(_run_server, factory, server, sink, checkpoints, stay)
    else:
        worker = factory.worker(name, transport)
        worker.step = checkpoints.start.step
        node = worker
        run = partial(_run_worker, worker, settings, sink, checkpoints, stay)
    listening(node)
    _patiently(run, node, settings, sink, patient=patient)


def run_server(
    factory: Factory,
    server: Server,
    sink: Sink | None,
    checkpoints: NodeCheckpoints,
    evaluator: BackgroundEvaluator | None = None,
) -> None:
    """Run the application's loop; a model that has diverged ends it, and is reported as such.

    Without a sink nothing is reported, and so nothing evaluated. Without an evaluator,
    evaluations are made in the server's own time, which may stand still for its peers too.
    """
    settings = factory.settings
    if server.worker is not None:
        checkpoints.restore_velocity(server.worker, sink or _nobody)
    every = settings.evaluation.evaluate_every if server.name == settings.honest_servers[0] else 0
    metric = metric_of(settings.learning, settings.samples, settings.seed)
    reporter = None
    if sink is not None:
        lying = () if settings.faults.worker_attack == NONE else settings.liars
        reporter = ServerReporter(
            sink, every, total=settings.steps, evaluator=evaluator, liars=lying, metric=metric
        )

    def after_step(server: Server, run: Run[Any]) -> None:
        checkpoints.completed(server)
        if reporter is not None:
            reporter.after_step(server, run)
        checkpoints.after_step(server, every=settings.checkpoint_every, total=settings.steps)

    try:
        settings.application.loop(server, factory.run(server, after_step))
    except DivergedError as failure:
        if sink is not None:
            told = {"event": "diverged", "node": server.name, "step": server.step}
            found = evaluation(metric, *server.evaluate())
            del found["loss"]  # no number any more
            sink({**told, **found, "error": str(failure)})


def _run_server(
    factory: Factory,
    server: Server,
    sink: Sink,
    checkpoints: NodeCheckpoints,
    stay: Stay,
) -> None:
    """Train, with evaluations in the background; a server that is told to stop is saved."""
    s = factory.settings
    patience_s = s.rounds.timeout_s / 4
    metric = metric_of(s.learning, s.samples, s.seed)
    try:
        with BackgroundEvaluator(
            lambda: factory.adapter(server.name, True), patience_s, metric
        ) as beside:
            run_server(factory, server, sink, checkpoints, beside)
    except (SystemExit, KeyboardInterrupt):
        checkpoints.interrupted(server)
        raise
    sink({"event": "done", "node": server.name, "step": server.step, **account(server)})
    stay(server)


def _run_worker(
    worker: Worker,
    settings: Settings,
    sink: Sink,
    checkpoints: NodeCheckpoints,
    stay: Stay,
) -> None:
    """Serve gradients until the last step; a worker that is told to stop is saved, too."""
    reporter = WorkerReporter(sink, worker, total=settings.steps)
    every = settings.checkpoint_every
    saved = WorkerCheckpoints(checkpoints, worker, sink, every=every, total=settings.steps)

    def over() -> bool:
        reporter.after_step()
        saved.between_steps()
        return worker.step >= settings.steps

    try:
        worker.serve(over)
        sink({"event": "done", "node": worker.name, "step": worker.step})
        stay(worker)
    except (SystemExit, KeyboardInterrupt):
        saved.interrupted()
        reporter.report()
        raise


def _nobody(event: Event) -> None:
    """Take an event that nobody wants."""


def _patiently(
    run: Callable[[], None],
    node: Server | Worker,
    settings: Settings,
    sink: Sink,
    *,
    patient: bool,
) -> None:
    """Run again as long as nobody has answered at all, and while a worker's servers may be down."""
    rounds, first = settings.rounds, node.step
    silent_since = time.monotonic()
    while True:
        began, before = time.monotonic(), node.step
        try:
            return run()
        except QuorumError as shortage:
            now = time.monotonic()
            if node.step != before:
                silent_since = now - node.waits.give_up_s
            starts = patient and node.step == first
            follows = isinstance(node, Worker) and now - silent_since < rounds.wait_for_servers_s
            if not (starts or follows) or now - began < rounds.give_up_s:
                raise
            sink({"event": "waiting", "node": node.name, "error": str(shortage)})


def _factory(settings: Settings, *, secret: bool) -> Factory:
    return Factory(
        settled(settings),
        lambda name, optimizer: new_adapter(
            settings, settings.framework_of(name), optimizer=optimizer
        ),
        {"waits": settings.rounds.waits},
        secret=secret,
    )
