"""Measure how much honest gradients vary, on a model and data of the user's (thesis, 3.3.1).

Trains in one process with the honest workers alone, by averaging, and takes σ / |∇L| of what
they send at every step: velocities, if workers have momentum. So the numbers are those that
a rule would see if f others lied, while the model is where honest training leads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError
from garfield.core.events import Event
from garfield.launch.simulate import simulate
from garfield.launch.training import prepare
from garfield.runs.process import keep_heap, use_threads


@dataclass(frozen=True)
class Measured:
    """σ / |∇L| at each step that was measured."""

    n: int
    f: int
    steps: tuple[int, ...]
    ratios: tuple[float, ...]


def honest_run(settings: Settings, f: int) -> Settings:
    """The run in which gradients are measured: the last f workers do not take part.

    They keep their share of the data, so that the others have what is theirs.
    """
    n = settings.nodes.workers
    if not 0 <= f <= n - 2:
        raise ConfigError(
            f"A variance needs 2 honest workers at least: f must be within 0..{n - 2} (workers - "
            f"2), got {f}."
        )
    plain = settings.updated(
        app="ssmw", gar="average", servers=1, byzantine_workers=0, byzantine_servers=0,
        f_workers=0, f_servers=None, worker_attack="none", server_attack="none",
        asynchronous=False, transport="grpc", simulate=True, evaluate_every=0, test_images=1,
        checkpoint_every=0, exclude=(),
    )  # fmt: skip
    return plain.updated(exclude=plain.all_workers[n - f :])


def measure_variance(
    settings: Settings,
    f: int,
    *,
    threads: int = 1,
    step: Callable[[int], object] = lambda done: None,
) -> Measured:
    """Run it, and keep what every step tells; `step` is called with the steps done."""
    run = prepare(honest_run(settings, f))
    steps, ratios = [], []

    def sink(event: Event) -> None:
        if event["event"] != "step":
            return
        if "variance_ratio" in event:
            steps.append(int(event["step"]))
            ratios.append(float(event["variance_ratio"]))
        step(int(event["step"]))

    keep_heap()
    use_threads(1, run.frameworks)
    simulate(run, sink, threads=threads)
    return Measured(run.nodes.workers, f, tuple(steps), tuple(ratios))
