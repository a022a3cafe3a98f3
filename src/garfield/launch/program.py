"""What a server does in a run, from its first step to its last word."""

from __future__ import annotations

from typing import Any

from garfield.apps import Run
from garfield.core.errors import DivergedError
from garfield.core.events import Sink
from garfield.launch.assemble import Factory
from garfield.launch.background_evaluator import Aside
from garfield.launch.reporters import Reporter
from garfield.launch.server_checkpoints import Keeping
from garfield.nodes.server import Server


def run_server(
    factory: Factory,
    server: Server,
    sink: Sink | None,
    keeping: Keeping | None = None,
    aside: Aside | None = None,
) -> None:
    """Run the application's loop; a model that has diverged ends it, and is reported as such.

    Without a sink, nothing is told, and so nothing evaluated. Evaluations along the way are
    made `aside`, or in the server's own time, if that stands still for its peers too.
    """
    settings, kept = factory.settings, keeping or Keeping()
    reports = server.name == reporting_server(factory)
    every = settings.evaluate_every if reports else 0
    reporter = None
    if sink is not None:
        reporter = Reporter(sink, evaluate_every=every, total=settings.steps, aside=aside)

    def after_step(server: Server, run: Run[Any]) -> None:
        if reporter is not None:
            reporter.after_step(server, run)
        kept.after_step(server, every=settings.checkpoint_every, total=settings.steps)

    try:
        settings.application.loop(server, factory.run(after_step))
    except DivergedError as failure:
        if sink is not None:
            accuracy, _ = server.evaluate()
            sink({
                "event": "diverged", "node": server.name, "step": server.step,
                "accuracy": accuracy, "error": str(failure),
            })  # fmt: skip


def reporting_server(factory: Factory) -> str:
    """The first honest one: it alone evaluates along the way."""
    return factory.settings.honest_servers[0]
