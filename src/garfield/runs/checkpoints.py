"""Checkpoints: what a node needs to go on from a step, written whole or not at all.

    server-0-00000040.npz    step, and one flat vector
    server-0-00000040.pt     the rest of its state, if that is torch's: tensors and numbers only

State that is all arrays stands in the .npz too, and there is no .pt. The .npz is written
last, so a step that has one is complete. Of every node the last two are kept.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from garfield.adapters.contract import FlatVector
from garfield.core.errors import ConfigError
from garfield.core.files import replacing

KEPT = 2
_STATE = "state."  # in front of the names of the state's arrays
_NAME = re.compile(r"(?P<node>.+)-(?P<step>\d{8,})\.npz")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a node at a step."""

    step: int
    vector: FlatVector
    state: Mapping[str, Any]
    """Its other parts by name: arrays, or what `torch.save` takes."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run's nodes, all in one directory."""

    directory: Path

    def save(self, name: str, checkpoint: Checkpoint) -> None:
        """Write a node's checkpoint, and remove all but its last few."""
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"{name}-{checkpoint.step:08}.npz"
        state = checkpoint.state
        arrays = {f"{_STATE}{key}": part for key, part in state.items()}
        if not arrays or not all(isinstance(x, (np.ndarray, np.generic)) for x in arrays.values()):
            import torch

            arrays = {}
            with replacing(path.with_suffix(".pt")) as partial:
                torch.save(dict(state), partial)
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(file, step=np.int64(checkpoint.step), vector=checkpoint.vector, **arrays)
        for _, old in sorted(self.saved(name).items())[:-KEPT]:
            old.unlink(missing_ok=True)
            old.with_suffix(".pt").unlink(missing_ok=True)

    def saved(self, name: str) -> dict[int, Path]:
        """The paths of a node's checkpoints, by step."""
        found = [
            (path, _NAME.fullmatch(path.name)) for path in self.directory.glob(f"{name}-*.npz")
        ]
        return {int(m["step"]): path for path, m in found if m and m["node"] == name}


def read_checkpoint(path: Path) -> Checkpoint:
    """Read what `Checkpoints.save` wrote; ConfigError if the file is damaged or is another's."""
    with _readable(path):
        with np.load(path, allow_pickle=False) as content:
            step, vector = int(content["step"]), content["vector"]
            names = [key for key in content if key.startswith(_STATE)]
            state: Mapping[str, Any] = {key.removeprefix(_STATE): content[key] for key in names}
        if not names:
            import torch

            state = torch.load(path.with_suffix(".pt"), weights_only=True)
    if vector.ndim != 1 or vector.dtype != np.float32:
        raise ConfigError(
            f"{path} is no checkpoint: its vector is {vector.dtype} of shape {vector.shape} "
            "and not flat float32. Remove it to go further back."
        )
    return Checkpoint(step, vector, state)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile) as problem:
        raise ConfigError(
            f"{path} cannot be read: {problem}. Remove it to go further back."
        ) from None
