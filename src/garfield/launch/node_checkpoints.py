"""The checkpoints of a training run's nodes: servers' models, and workers' velocities.

A resumed run starts at the newest step that f + 1 servers have saved, or a later one: of f, all
may be liars. Each server starts from its own file of that step, or from the first honest one's
where it has none; with the model come its tail, optimizer and schedule. What was saved of later
steps is removed, as these will be done again. Workers save the velocity that their next gradient
builds on, so that momentum goes on as if nothing had happened: a vector for each worker and
checkpoint.

    server-0-00000040.safetensors             a model, with the rest of its state
    worker-3-velocity-00000040.safetensors    what worker-3 adds, times momentum, to its gradient
                                              of step 40

A velocity is taken up at its own step only. Without one a worker says so and starts from zero,
which costs it about 1 / (1 - momentum) steps and nobody's safety.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import prod
from pathlib import Path

import numpy as np

from garfield.adapters.contract import FlatVector, Layout
from garfield.core.errors import ConfigError
from garfield.core.events import Sink
from garfield.nodes.server import Server
from garfield.nodes.worker import Worker
from garfield.runs.checkpoints import Checkpoint, Checkpoints, read_checkpoint
from garfield.transport.contract import Key

KEPT_WHEN_RESUMED = ("app", "model", "framework", "data", "optimizer")
"""Settings that a checkpoint is bound to."""


@dataclass(frozen=True)
class ResumePoint:
    """The step that a run starts at, and the checkpoint that each server starts from."""

    step: int = 0
    files: Mapping[str, Path] = field(default_factory=dict)
    """The checkpoint of each server, by name; empty for a new run."""
    passed_over: tuple[str, ...] = ()
    """Which newer ones could not be read, and why: a sentence each."""


@dataclass(frozen=True)
class NodeCheckpoints:
    """Saves nodes as they train, and restores them when a run is resumed."""

    directory: Path | None = None
    """None: nothing is saved."""
    start: ResumePoint = field(default_factory=ResumePoint)
    _completed: dict[str, int] = field(default_factory=dict, compare=False)
    """The last step that each server has done to its end, its part in joining models included."""

    def completed(self, server: Server) -> None:
        """Note that the model in the server's memory is that of its step."""
        self._completed[server.name] = server.step

    def resumed(self, servers: Sequence[str], honest: Sequence[str], f: int = 0) -> NodeCheckpoints:
        """The same directory, starting from the newest step that f + 1 of its servers have.

        `honest` are those who are not known to lie, of whom f may do so all the same. A checkpoint
        that cannot be read counts as none, and is told of.
        """
        assert self.directory is not None  # there is nothing to resume from otherwise
        checkpoints = Checkpoints(self.directory)
        saved = {name: checkpoints.saved(name) for name in (*honest, *servers)}
        broken: dict[Path, str] = {}
        while True:
            newest = sorted((max(saved[name]) for name in honest if saved[name]), reverse=True)
            if len(newest) <= f:
                raise ConfigError(_none_left(self.directory, len(newest), f, broken))
            step = newest[f]
            first = next(saved[name][step] for name in honest if step in saved[name])
            files = {name: saved[name].get(step, first) for name in servers}
            found = _unreadable([first, *files.values()])
            if not found:
                told = tuple(f"{why} The run goes on from step {step}." for why in broken.values())
                return NodeCheckpoints(self.directory, ResumePoint(step, files, told))
            broken |= found
            saved = {
                name: {at: path for at, path in of.items() if path not in found}
                for name, of in saved.items()
            }

    def again(self, name: str) -> NodeCheckpoints:
        """The same, for a server that is started again within a run: its newest, if it has any."""
        saved = {} if self.directory is None else Checkpoints(self.directory).saved(name)
        for step in sorted((step for step in saved if step > self.start.step), reverse=True):
            if not _unreadable([saved[step]]):
                return replace(self, start=ResumePoint(step, {name: saved[step]}))
        return self

    def restore(self, server: Server) -> None:
        """Put a new server where its checkpoint was written."""
        if server.name not in self.start.files:
            return
        if self.directory is not None:
            for step, path in Checkpoints(self.directory).saved(server.name).items():
                if step > self.start.step:
                    path.unlink(missing_ok=True)  # of steps that will be done again
        path = self.start.files[server.name]
        saved = read_checkpoint(path)
        expected = server.model.size + server.model.tail
        if saved.vector.size != expected:
            raise ConfigError(
                f"{path} holds a model of {saved.vector.size} numbers, and this one has "
                f"{expected}. Resume with the same model."
            )
        server.model.write(saved.vector)
        try:
            server.model.restore(saved.state)
        except ConfigError as problem:
            raise ConfigError(f"{path}: {problem} Remove it to go further back.") from None
        server.step, server.resumed = saved.step, True

    def after_step(self, server: Server, *, every: int, total: int) -> None:
        """Save the server every so many steps, and after the last."""
        if _due(server.step, every, total):
            self._save(server, server.step, server.read_model())
            if server.worker is not None:
                self.save_velocity(server.worker, server.step)

    def interrupted(self, server: Server) -> None:
        """Save the last step that was done, wherever in the next one the server was stopped.

        The model of that step is still in its outbox, or, at a server that has completed it or
        agrees on it with nobody, in its memory. An optimizer with a state of its own may have
        been stopped half a step later.
        """
        unpublished = server.outbox.own(Key("model", server.step)) is None
        final = len(server.servers) == 1 or self._completed.get(server.name) == server.step
        if server.worker is not None:
            for step in sorted(server.worker.velocities):  # peers may be a step behind or ahead
                self.save_velocity(server.worker, step)
        if unpublished and server.step > 0 and final:
            self._save(server, server.step, server.read_model())
            return
        for step in (server.step, server.step - 1):
            vector = server.outbox.own(Key("model", step))
            if vector is not None and step > 0:
                self._save(server, step, vector)
                return

    def _save(self, server: Server, step: int, vector: FlatVector) -> None:
        if self.directory is not None:
            saved = Checkpoint(step, vector, server.model.state(), server.model.layout)
            Checkpoints(self.directory).save(server.name, saved)

    def save_velocity(self, worker: Worker, step: int) -> None:
        """Save what the worker's gradient of that step builds on, if it has it."""
        velocity = worker.velocities.get(step)
        if self.directory is not None and velocity is not None:
            known = {"momentum": np.float64(worker.momentum)}
            body = velocity[: worker.model.size]
            saved = Checkpoint(step, body, known, _of_body(worker.model.layout, body.size))
            Checkpoints(self.directory).save(_of_velocity(worker.name), saved)

    def restore_velocity(self, worker: Worker, sink: Sink) -> None:
        """Let the worker's first gradient build on what was saved of its step, whichever it is.

        An event tells of a worker that was started before and has nothing of that step.
        """
        if self.directory is not None:
            worker.first_velocity = lambda step: self._velocity(worker, step, sink)

    def _velocity(self, worker: Worker, step: int, sink: Sink) -> FlatVector | None:
        assert self.directory is not None  # nobody asks otherwise
        name = _of_velocity(worker.name)
        found = Checkpoints(self.directory).saved(name)
        if step == 0 or not (found or self.start.step):
            return None  # a new run
        try:
            if step not in found:
                raise ConfigError(f"There is no {name} of step {step} in {self.directory}.")
            return _read_velocity(found[step], worker.model.size)
        except ConfigError as problem:
            about = f"{worker.name} goes on from step {step} without its momentum. {problem}"
            sink({"event": "no-velocity", "node": worker.name, "step": step, "error": about})
            return None
        finally:
            for path in (path for other, path in found.items() if other > step):
                path.unlink(missing_ok=True)  # of steps that will be done again


class WorkerCheckpoints:
    """What a worker that follows its servers starts from, and saves."""

    def __init__(
        self, checkpoints: NodeCheckpoints, worker: Worker, sink: Sink, *, every: int, total: int
    ) -> None:
        self._checkpoints, self._worker = checkpoints, worker
        self._every, self._total = every, total
        checkpoints.restore_velocity(worker, sink)
        self._saved: int | None = None

    def between_steps(self) -> None:
        """Save when it is time to; called before every attempt at a step."""
        if self._saved is not None and self._worker.step < self._saved:
            self._saved = None  # it has gone back, and that step will be another
        if _due(self._worker.step, self._every, self._total):
            self._save(self._worker.step)

    def interrupted(self) -> None:
        """Save what it has: its servers may have been stopped a step earlier or later."""
        for step in sorted(self._worker.velocities):
            self._save(step)

    def _save(self, step: int) -> None:
        if step != self._saved:
            self._checkpoints.save_velocity(self._worker, step)
            self._saved = step


def _none_left(directory: Path, count: int, f: int, broken: Mapping[Path, str]) -> str:
    """Why there is no step to resume from, and what to do."""
    if broken:
        why = " ".join(broken.values())
        return f"No checkpoint is left to resume from. {why} Start anew elsewhere."
    told = f"There is no checkpoint in {directory} to resume from"
    if not count:
        return f"{told}."
    have = f"{count} of {f + 1} servers that must have one"
    return f"{told}: {have} do. Lower --f-servers to believe fewer."


def _unreadable(paths: Iterable[Path]) -> dict[Path, str]:
    """Which of these checkpoints cannot be read, and why."""
    found = {}
    for path in dict.fromkeys(paths):
        try:
            read_checkpoint(path)
        except ConfigError as problem:
            found[path] = str(problem)
    return found


def _due(step: int, every: int, total: int) -> bool:
    return step >= total or bool(every and step % every == 0)


def _of_velocity(name: str) -> str:
    return f"{name}-velocity"


def _of_body(layout: Layout, size: int) -> Layout:
    """The names of parameters: they come first, and buffers after them."""
    ends = accumulate(prod(shape) for _, shape in layout)
    return [named for named, end in zip(layout, ends, strict=True) if end <= size]


def _read_velocity(path: Path, size: int) -> FlatVector:
    saved = read_checkpoint(path)
    if saved.vector.size != size:
        raise ConfigError(f"{path} holds {saved.vector.size} numbers, and the model has {size}.")
    return saved.vector
