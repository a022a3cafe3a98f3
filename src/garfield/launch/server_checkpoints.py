"""Checkpoints: what a server needs to go on from a step, written whole or not at all.

    checkpoints/server-0-00000040.npz    step, and the flat model with its tail, float32
    checkpoints/server-0-00000040.pt     optimizer and schedule, tensors and numbers only

With TensorFlow there is no .pt: the optimizer's arrays are in the .npz too. The .npz is
written last, so a step that has one is complete. Every server keeps its last two. A
resumed run starts at the newest step of the first honest server: each server from its
own file of that step, or from that server's where it has none. Workers' momentum is not
saved: after a resume their velocities build up again from zero, within about
1 / (1 - momentum) steps.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from garfield.adapters.contract import FlatVector
from garfield.core.errors import ConfigError
from garfield.nodes.server import Server
from garfield.transport.contract import Key

KEPT = 2
_STATE = "state."  # in front of the names of an optimizer's arrays
_NAME = re.compile(r"(?P<node>.+)-(?P<step>\d{8,})\.npz")


@dataclass(frozen=True)
class Keeping:
    """Where a run's checkpoints go, and where it starts from."""

    directory: Path | None = None
    """None: nothing is kept."""
    step: int = 0
    files: Mapping[str, Path] = field(default_factory=dict)
    """What each server starts from; empty for a new run."""

    def resumed(self, servers: Sequence[str], honest: Sequence[str]) -> Keeping:
        """The same directory, from the newest step that is in it."""
        assert self.directory is not None  # there is nothing to resume from otherwise
        for leader in honest:
            if found := saved(self.directory, leader):
                step = max(found)
                own = {name: saved(self.directory, name).get(step) for name in servers}
                return Keeping(
                    self.directory, step, {name: own[name] or found[step] for name in servers}
                )
        raise ConfigError(f"There is no checkpoint in {self.directory} to resume from.")

    def restore(self, server: Server) -> None:
        """Put a new server where its checkpoint was written."""
        if server.name in self.files:
            load(self.files[server.name], server)

    def after_step(self, server: Server, *, every: int, total: int) -> None:
        """Save when it is time to."""
        due = server.step >= total or (every and server.step % every == 0)
        if due and self.directory is not None:
            vector = np.empty(server.model.size + server.model.tail, np.float32)
            server.model.read(vector)
            save(self.directory, server.name, server.step, vector, server.model.state())

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
            if vector is not None and step > 0 and self.directory is not None:
                save(self.directory, server.name, step, vector, server.model.state())
                return


def save(
    directory: Path, name: str, step: int, vector: FlatVector, state: Mapping[str, Any]
) -> None:
    """Write a checkpoint, and forget all but the last few of the same server."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{step:08}.npz"
    arrays = {f"{_STATE}{key}": part for key, part in state.items()}
    if not arrays or not all(isinstance(x, (np.ndarray, np.generic)) for x in arrays.values()):
        import torch

        arrays = {}
        with _whole(path.with_suffix(".pt")) as partial:
            torch.save(dict(state), partial)
    with _whole(path) as partial, partial.open("wb") as file:
        np.savez(file, step=np.int64(step), vector=vector, **arrays)
    for old in sorted(saved(directory, name).items())[:-KEPT]:
        old[1].unlink(missing_ok=True)
        old[1].with_suffix(".pt").unlink(missing_ok=True)


def saved(directory: Path, name: str) -> dict[int, Path]:
    """A server's checkpoints, by step."""
    found = [(path, _NAME.fullmatch(path.name)) for path in directory.glob(f"{name}-*.npz")]
    return {int(m["step"]): path for path, m in found if m and m["node"] == name}


def load(path: Path, server: Server) -> None:
    """Take model, optimizer and step from a checkpoint."""
    with _readable(path):
        with np.load(path, allow_pickle=False) as content:
            step, vector = int(content["step"]), content["vector"]
            kept = [key for key in content if key.startswith(_STATE)]
            state: Mapping[str, Any] = {key.removeprefix(_STATE): content[key] for key in kept}
        if not kept:
            import torch

            state = torch.load(path.with_suffix(".pt"), weights_only=True)
    if vector.shape != (server.model.size + server.model.tail,) or vector.dtype != np.float32:
        raise ConfigError(
            f"{path} holds a model of {vector.size} numbers, and this one has "
            f"{server.model.size + server.model.tail}. Resume with the same model."
        )
    server.model.write(vector)
    server.model.restore(state)
    server.step = step


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A file to write to that takes its name when it is complete."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile) as problem:
        raise ConfigError(
            f"{path} cannot be read: {problem}. Remove it to go further back."
        ) from None
