"""A training run from settings to what it leaves in its directory.

`prepare` refuses what cannot work, before anything starts or is written. `train`
then runs the nodes, as processes or simulated, records their events, and sums them
up however the run ends: done, failed, or interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from garfield.apps.groups import NONE
from garfield.apps.settings import Settings
from garfield.core.blame import unforeseen
from garfield.core.errors import ConfigError, GarfieldError, MissingDependency, RunError
from garfield.core.events import Event, Sink
from garfield.core.frameworks import require
from garfield.launch.assemble import dataset, settled, shares_of
from garfield.launch.node import NodeOptions
from garfield.launch.node_checkpoints import KEPT_WHEN_RESUMED, NodeCheckpoints
from garfield.launch.trial import check_fit
from garfield.report import plots
from garfield.report.live import LiveDisplay
from garfield.report.run_history import Roster, RunHistory, read_history
from garfield.report.summary import summarise, versions
from garfield.runs.interrupts import Interrupts
from garfield.runs.process import keep_heap, seed_draws, use_threads
from garfield.runs.run_directory import RunDirectory
from garfield.runs.user_files import loaded, recorded

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """What came of a run, and how it ended."""

    summary: Mapping[str, Any]
    history: RunHistory
    interrupted: bool = False
    failure: str | None = None
    error: Exception | None = None
    """What was raised, if that is why it failed."""


def prepare(settings: Settings) -> Settings:
    """Refuse what cannot be run here: names, bounds, data and their partition.

    Returns the settings with what the application works out for itself.
    """
    s = settings.check()
    require(s.frameworks)
    s.recording.check()
    dataset(s.samples, s.seed)
    shares_of(s.samples, s.nodes.workers, s.seed)
    check_fit(s)
    return settled(s)


def resumption(settings: Settings, directory: RunDirectory, before: Settings) -> NodeCheckpoints:
    """Find the checkpoints to go on from; model and data must be those of the run before."""
    was, wanted = before.values(), settings.values()
    for name in KEPT_WHEN_RESUMED:
        old, new = was[name], wanted[name]
        if old != new:
            raise ConfigError(f"A resumed run keeps its {name}: {old}, got {new}.")
    checkpoints = NodeCheckpoints(directory.checkpoints).resumed(
        settings.server_names, settings.honest_servers, settings.application.doubted(settings)
    )
    if checkpoints.start.step >= settings.steps:
        raise ConfigError(
            f"{directory.path} is at step {checkpoints.start.step} of {settings.steps} already. "
            "Give more --steps to go on."
        )
    return checkpoints


def train(
    settings: Settings,
    directory: RunDirectory,
    display: LiveDisplay,
    *,
    checkpoints: NodeCheckpoints | None = None,
    threads: int = 1,
    pictures: bool = True,
) -> RunResult:
    """Run a training, and leave its directory complete; without `pictures`, save for these."""
    saved = checkpoints or NodeCheckpoints(directory.checkpoints)
    started = datetime.now(timezone.utc)
    with Interrupts() as interrupts:
        ending = _recorded(settings, directory, display, saved, threads, interrupts)
        failure = ending.failure
        history = read_history(directory.events(), roster_of(settings))
        summary = {
            **_about(settings), **summarise(history), "interrupted": ending.interrupted,
            "failed": failure or history.diverged,
            "started": started.isoformat(timespec="seconds"),
        }  # fmt: skip
        try:
            directory.write_summary(summary)
        except RunError as problem:
            failure = failure or str(problem)
        if pictures:
            with suppress(KeyboardInterrupt), interrupts.allowed():
                _draw(history, settings, directory.path, display.say)
    failure = failure or history.diverged
    return RunResult(summary, history, bool(interrupts.heard), failure, ending.error)


@dataclass
class _Ending:
    """How the nodes of a run ended."""

    failure: str | None = None
    interrupted: bool = False
    error: Exception | None = None


def _recorded(
    settings: Settings,
    directory: RunDirectory,
    display: LiveDisplay,
    saved: NodeCheckpoints,
    threads: int,
    interrupts: Interrupts,
) -> _Ending:
    """Run the nodes and record what they tell."""
    ending = _Ending()
    with directory:
        directory.open({**settings.values(), **recorded()}, settings.recording.log)
        if saved.start.step:
            directory.record({"event": "resumed", "step": saved.start.step})

        def sink(event: Event) -> None:
            directory.record(event)
            display.take(event)

        with display:
            for note in saved.start.passed_over:
                display.say(note)
            for caution in settings.application.cautions(settings):
                display.say(caution)
            try:
                with interrupts.allowed():
                    _run(settings, sink, saved, threads)
            except KeyboardInterrupt:
                ending.interrupted = True
                display.say("Interrupted: nodes have ended.")
            except Exception as error:  # also of the system, or of a model of the user's
                _log.debug("Where it went wrong:", exc_info=True)
                ending.failure, ending.error = _told(error), error
    return ending


def _told(error: Exception) -> str:
    known = isinstance(error, (GarfieldError, OSError))  # as a full disk says what it is
    return str(error) if known else unforeseen(error)


def roster_of(settings: Settings) -> Roster:
    lying = tuple(name for name in settings.liars if _attack_on(settings, name) != NONE)
    return Roster(settings.server_names, settings.worker_names, lying)


def title(settings: Settings) -> str:
    """Describe a run in a line."""
    text = f"{settings.app}, {settings.rule_name}, {len(settings.worker_names)} workers"
    lying = [name for name in roster_of(settings).liars if name in settings.worker_names]
    count = settings.faults.byzantine_workers if settings.faults.redrawn else len(lying)
    return f"{text}, {count} lying ({settings.faults.worker_attack})" if count else text


def _run(settings: Settings, sink: Sink, checkpoints: NodeCheckpoints, threads: int) -> None:
    if settings.simulate:
        from garfield.launch.simulate import simulate

        keep_heap()
        use_threads(1, settings.frameworks)
        seed_draws(settings.seed, settings.frameworks)
        simulate(settings, sink, checkpoints=checkpoints, threads=threads)
    else:
        from garfield.launch.processes import run_processes

        run_processes(settings, sink, options=NodeOptions(threads, checkpoints, loaded()))


def _about(settings: Settings) -> dict[str, Any]:
    names = ("app", "model", "framework", "data", "workers", "servers", "seed", "simulate")
    values = settings.values()
    about = {name: values[name] for name in (*names, "worker_attack", "server_attack")}
    more = {"total_steps": settings.steps, "versions": versions()}
    more |= {"excluded": list(settings.nodes.exclude), "transport": settings.nodes.transport}
    data = dataset(settings.samples, settings.seed)
    more |= {"classes": data.class_count, "input_shape": list(data.shape)}
    own = settings.application.summary_fields(settings)
    return {**about, "gar": settings.rule_name, **more, **own, "settings": values}


def _attack_on(settings: Settings, name: str) -> str:
    faults = settings.faults
    return faults.worker_attack if name in settings.worker_names else faults.server_attack


def _draw(history: RunHistory, settings: Settings, path: Path, say: Callable[[str], None]) -> None:
    try:
        plots.draw_all(history, title(settings), path, settings.recording.plots)
    except MissingDependency as missing:
        say(str(missing))
    except OSError as problem:
        say(f"Pictures cannot be written to {path}: {problem.strerror or problem}.")
