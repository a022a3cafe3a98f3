"""The checkpoints of a training run's servers: the model with its tail, optimizer and schedule.

A resumed run starts at the newest step of the first honest server: each server from its
own file of that step, or from that server's where it has none. Workers' momentum is not
saved: after a resume their velocities build up again from zero, within about
1 / (1 - momentum) steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from garfield.adapters.contract import FlatVector
from garfield.core.errors import ConfigError
from garfield.nodes.server import Server
from garfield.runs.checkpoints import Checkpoint, Checkpoints, read_checkpoint
from garfield.transport.contract import Key


@dataclass(frozen=True)
class ResumePoint:
    """The step that a run starts at, and the checkpoint that each server starts from."""

    step: int = 0
    files: Mapping[str, Path] = field(default_factory=dict)
    """The checkpoint of each server, by name; empty for a new run."""


@dataclass(frozen=True)
class ServerCheckpoints:
    """Saves servers as they train, and restores them when a run is resumed."""

    directory: Path | None = None
    """None: nothing is saved."""
    start: ResumePoint = field(default_factory=ResumePoint)

    def resumed(self, servers: Sequence[str], honest: Sequence[str]) -> ServerCheckpoints:
        """The same directory, starting from the newest step that is in it."""
        assert self.directory is not None  # there is nothing to resume from otherwise
        checkpoints = Checkpoints(self.directory)
        for leader in honest:
            if found := checkpoints.saved(leader):
                step = max(found)
                own = {name: checkpoints.saved(name).get(step) for name in servers}
                files = {name: own[name] or found[step] for name in servers}
                return ServerCheckpoints(self.directory, ResumePoint(step, files))
        raise ConfigError(f"There is no checkpoint in {self.directory} to resume from.")

    def restore(self, server: Server) -> None:
        """Put a new server where its checkpoint was written."""
        if server.name not in self.start.files:
            return
        path = self.start.files[server.name]
        saved = read_checkpoint(path)
        expected = server.model.size + server.model.tail
        if saved.vector.size != expected:
            raise ConfigError(
                f"{path} holds a model of {saved.vector.size} numbers, and this one has "
                f"{expected}. Resume with the same model."
            )
        server.model.write(saved.vector)
        server.model.restore(saved.state)
        server.step = saved.step

    def after_step(self, server: Server, *, every: int, total: int) -> None:
        """Save the server every so many steps, and after the last."""
        if server.step >= total or (every and server.step % every == 0):
            vector = np.empty(server.model.size + server.model.tail, np.float32)
            server.model.read(vector)
            self._save(server, server.step, vector)

    def interrupted(self, server: Server) -> None:
        """Save the last step that was done, wherever in the next one the server was stopped.

        The model of that step is still in its outbox, or, at a server that agrees on it with
        nobody, in its memory. An optimizer with a state of its own may have been stopped half a
        step later.
        """
        unpublished = server.outbox.own(Key("model", server.step)) is None
        if unpublished and server.step > 0 and len(server.servers) == 1:
            self.after_step(server, every=1, total=server.step)
            return
        for step in (server.step, server.step - 1):
            vector = server.outbox.own(Key("model", step))
            if vector is not None and step > 0:
                self._save(server, step, vector)
                return

    def _save(self, server: Server, step: int, vector: FlatVector) -> None:
        if self.directory is not None:
            saved = Checkpoint(step, vector, server.model.state())
            Checkpoints(self.directory).save(server.name, saved)
