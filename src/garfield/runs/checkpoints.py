"""Checkpoints: what a node needs to go on from a step, written whole or not at all.

    server-0-00000040.npz    step, and one flat vector
    server-0-00000040.pt     the rest of its state, if that is torch's: tensors and numbers only

State that is all arrays stands in the .npz too, and there is no .pt. The .npz is written
last, with a digest of its .pt: a step that has one is complete, and a .pt of another origin is
noticed. Of every node the last two are kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np

from garfield.adapters.contract import FlatVector
from garfield.core.errors import ConfigError, RunError
from garfield.core.files import replacing

KEPT = 2
_STATE = "state."  # in front of the names of the state's arrays
_DIGEST = "digest"  # of the .pt
_NAME = re.compile(r"(?P<node>.+)-(?P<step>\d{8,})\.npz")
_PARTIAL = re.compile(r"\.(?P<node>.+)-\d{8,}\.(npz|pt)\.\d+\.part")


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
        path = self.directory / f"{name}-{checkpoint.step:08}.npz"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._write(path, checkpoint)
        except OSError as problem:
            raise RunError(
                f"A checkpoint of step {checkpoint.step} cannot be written to {self.directory}: "
                f"{problem.strerror or problem}. Make room there, and resume from the one before."
            ) from problem
        self._tidy(name, checkpoint.step)

    def _write(self, path: Path, checkpoint: Checkpoint) -> None:
        state = checkpoint.state
        arrays = {f"{_STATE}{key}": part for key, part in state.items()}
        if not arrays or not all(isinstance(x, (np.ndarray, np.generic)) for x in arrays.values()):
            with replacing(path.with_suffix(".pt")) as partial:
                arrays = {_DIGEST: _save_state(state, partial)}
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(file, step=np.int64(checkpoint.step), vector=checkpoint.vector, **arrays)

    def _tidy(self, name: str, step: int) -> None:
        """Remove all but the last few, and what is left of one whose writing broke off.

        Steps beyond this one are of a past that was given up: a run that could not read them has
        gone on from an earlier one.
        """
        saved = self.saved(name)
        kept = sorted(other for other in saved if other <= step)[-KEPT:]
        for other, old in saved.items():
            if other not in kept:
                old.unlink(missing_ok=True)
        for state in self.directory.glob(f"{name}-*.pt"):
            whole = state.with_suffix(".npz")
            match = _NAME.fullmatch(whole.name)
            if match and match["node"] == name and not whole.exists():
                state.unlink(missing_ok=True)
        for left in self.directory.glob(f".{name}-*.part"):  # by a process that was killed
            match = _PARTIAL.fullmatch(left.name)
            if match and match["node"] == name:
                left.unlink(missing_ok=True)

    def saved(self, name: str) -> dict[int, Path]:
        """The paths of a node's checkpoints, by step."""
        found = [
            (path, _NAME.fullmatch(path.name)) for path in self.directory.glob(f"{name}-*.npz")
        ]
        return {int(m["step"]): path for path, m in found if m and m["node"] == name}


def read_checkpoint(path: Path) -> Checkpoint:
    """Read what `Checkpoints.save` wrote; ConfigError if the file is damaged or is another's."""
    with _readable(path):
        content = _arrays(path)
        step, vector = int(content["step"]), content["vector"]
        names = [key for key in content if key.startswith(_STATE)]
        state: Mapping[str, Any] = {key.removeprefix(_STATE): content[key] for key in names}
        if vector.ndim != 1 or vector.dtype != np.float32:
            raise ValueError(
                f"its vector is {vector.dtype} of shape {vector.shape}, not flat float32"
            )
        named = _NAME.fullmatch(path.name)
        if named and int(named["step"]) != step:
            raise ValueError(f"it is of step {step}")
    if not names:
        with _readable(path.with_suffix(".pt")):
            state = _load_state(path.with_suffix(".pt"), content.get(_DIGEST))
    return Checkpoint(step, vector, state)


def _arrays(path: Path) -> dict[str, Any]:
    if not path.stat().st_size:
        raise ValueError("it is empty")
    with path.open("rb") as file:
        found = np.load(file, allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            raise ValueError("it is no archive of arrays")
        with found:
            return {name: found[name] for name in found.files}


class _Digesting:
    """A file that is written to, the digest of what was written, and what went wrong with it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest = file, hashlib.blake2b(digest_size=32)
        self.problem: OSError | None = None

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        try:
            return self._file.write(data)
        except OSError as problem:
            self.problem = problem
            raise

    def flush(self) -> None:
        self._file.flush()


def _save_state(state: Mapping[str, Any], path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Write what torch has to keep; the digest of the file."""
    import torch

    with path.open("wb", buffering=0) as file:
        digesting = _Digesting(file)
        try:
            torch.save(dict(state), cast(IO[bytes], digesting))  # it writes, and does no more
        except RuntimeError:
            if digesting.problem is None:
                raise
            raise digesting.problem from None  # torch says "unexpected pos" of a full disk
    return np.frombuffer(digesting.digest.digest(), np.uint8)


def _load_state(path: Path, digest: Any) -> Mapping[str, Any]:
    """Read it again; an earlier version wrote no digest."""
    import torch

    with path.open("rb") as file:
        if digest is not None:
            found = hashlib.blake2b(digest_size=32)
            while piece := file.read(1 << 20):
                found.update(piece)
            if found.digest() != np.asarray(digest, np.uint8).tobytes():
                raise ValueError("it is not what was written with its .npz")
            file.seek(0)
        state = torch.load(file, weights_only=True)
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise ValueError("it holds no state of a node")
    return state


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as problem:  # numpy, zipfile and torch raise some twenty kinds
        if isinstance(problem, OSError) and problem.strerror:
            why = problem.strerror
        else:
            why = (
                (str(problem).strip() or type(problem).__name__).splitlines()[0][:160].rstrip(". ")
            )
        raise ConfigError(f"{path} cannot be read: {why}.") from None
