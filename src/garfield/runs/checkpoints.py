"""Checkpoints: what a node needs to go on from a step, written whole or not at all.

    server-0-00000040.safetensors    its tensors by name; step, order and digests as metadata
    server-0-00000040.pt             the rest of its state, if that is torch's

Any reader of safetensors finds the model there. State that is all arrays stands in the same file,
and there is no .pt; one that is there holds tensors and numbers only. It is written first, and
the other has its digest: a step that has a .safetensors is complete, and a .pt of another origin
is noticed, as is any bit that has changed. Of every node the last two are kept.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np

from garfield.adapters.contract import FlatVector, Layout
from garfield.core.errors import ConfigError, MissingDependency, RunError
from garfield.core.files import replacing

KEPT = 2
SUFFIX = ".safetensors"
_WHOLE = "vector"  # the name of a vector whose parts have none
_STATE = "garfield.state."  # in front of the names of the state's arrays
_NAME = re.compile(r"(?P<node>.+)-(?P<step>\d{8,})\.safetensors")
_PARTIAL = re.compile(r"\.(?P<node>.+)-\d{8,}\.(safetensors|pt)\.\d+\.part")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a node at a step."""

    step: int
    vector: FlatVector
    state: Mapping[str, Any]
    """Its other parts by name: arrays, or what `torch.save` takes."""
    layout: Layout = ()
    """Names and shapes of the vector's parts, in order; empty: they have no names."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run's nodes, all in one directory."""

    directory: Path

    def save(self, name: str, checkpoint: Checkpoint) -> None:
        """Write a node's checkpoint, and remove all but its last few."""
        path = self.directory / f"{name}-{checkpoint.step:08}{SUFFIX}"
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
        arrays, state_digest = _as_arrays(checkpoint.state), ""
        if arrays is None:
            arrays = {}
            with replacing(path.with_suffix(".pt")) as partial:
                state_digest = _save_state(checkpoint.state, partial)
        with replacing(path) as partial:
            _save_tensors(partial, checkpoint, arrays, state_digest)

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
            whole = state.with_suffix(SUFFIX)
            match = _NAME.fullmatch(whole.name)
            if match and match["node"] == name and not whole.exists():
                state.unlink(missing_ok=True)
        for left in self.directory.glob(f".{name}-*.part"):  # by a process that was killed
            match = _PARTIAL.fullmatch(left.name)
            if match and match["node"] == name:
                left.unlink(missing_ok=True)

    def saved(self, name: str) -> dict[int, Path]:
        """The paths of a node's checkpoints, by step."""
        paths = self.directory.glob(f"{name}-*{SUFFIX}")
        found = [(path, _NAME.fullmatch(path.name)) for path in paths]
        return {int(m["step"]): path for path, m in found if m and m["node"] == name}


def read_checkpoint(path: Path) -> Checkpoint:
    """Read what `Checkpoints.save` wrote; ConfigError if the file is damaged or is another's."""
    with _readable(path):
        if not path.stat().st_size:
            raise ValueError("it is empty")
        found, state_digest = _load_tensors(path)
        named = _NAME.fullmatch(path.name)
        if named and int(named["step"]) != found.step:
            raise ValueError(f"it is of step {found.step}")
    if not state_digest:
        return found
    beside = path.with_suffix(".pt")
    with _readable(beside):
        return replace(found, state=_load_state(beside, state_digest))


# -- named tensors --------------------------------------------------------------------------------


def _save_tensors(
    path: Path, checkpoint: Checkpoint, state: Mapping[str, Any], state_digest: str
) -> None:
    """Write vector and state as named tensors, and what tells whether they are whole."""
    save_file, _, problem_kind = _safetensors()
    layout = checkpoint.layout
    if not layout or len(dict(layout)) < len(layout):  # Keras lets two layers share a name
        layout = ((_WHOLE, checkpoint.vector.shape),)
    tensors = _parts(checkpoint.vector, layout)
    order = [name for name, _ in layout]
    tensors |= {f"{_STATE}{name}": part for name, part in state.items()}
    told = {"step": str(checkpoint.step), "order": json.dumps(order), "state": state_digest}
    told["digest"] = _digest(told, tensors)
    try:
        save_file(tensors, path, metadata=told)
    except problem_kind as problem:  # of a full disk too
        raise OSError(str(problem)) from None


def _load_tensors(path: Path) -> tuple[Checkpoint, str]:
    """The checkpoint as far as it stands in this file, and the digest of what stands beside it."""
    _, safe_open, _ = _safetensors()
    with safe_open(path, framework="numpy") as file:
        told = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if told.get("digest") != _digest(told, tensors):
        raise ValueError("it is not what was written")
    order = json.loads(told["order"])
    vector = np.concatenate([tensors[name].reshape(-1) for name in order])
    if vector.dtype != np.float32:
        raise ValueError(f"its vector is {vector.dtype}, not float32")
    state = {name.removeprefix(_STATE): tensors[name] for name in tensors if name not in order}
    layout = tuple((name, tensors[name].shape) for name in order)
    if order == [_WHOLE]:
        layout = ()
    return Checkpoint(int(told["step"]), vector, state, layout), told["state"]


def _parts(vector: FlatVector, layout: Layout) -> dict[str, Any]:
    """The vector's parts by name: views of it."""
    sizes = [math.prod(shape) for _, shape in layout]
    assert sum(sizes) == vector.size
    ends = np.cumsum(sizes).tolist()
    return {
        name: vector[end - size : end].reshape(shape)
        for (name, shape), size, end in zip(layout, sizes, ends, strict=True)
    }


def _digest(told: Mapping[str, str], tensors: Mapping[str, Any]) -> str:
    """Of all that was written: safetensors has no checksum."""
    found = hashlib.blake2b(digest_size=32)
    found.update(json.dumps([told.get(key) for key in ("step", "order", "state")]).encode())
    for name in sorted(tensors):
        tensor = np.asarray(tensors[name], order="C")
        found.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        found.update(tensor.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _as_arrays(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """A state that is all arrays of numbers; None if it is not."""
    if not all(isinstance(part, (np.ndarray, np.generic)) for part in state.values()):
        return None
    arrays = {name: np.asarray(part, order="C") for name, part in state.items()}
    return arrays if all(part.dtype.kind in "biuf" for part in arrays.values()) else None


def _safetensors() -> tuple[Any, Any, type[Exception]]:
    try:
        from safetensors import SafetensorError, safe_open
        from safetensors.numpy import save_file
    except ImportError:
        raise MissingDependency(
            "Checkpoints are written as safetensors, which is not installed. "
            "Install it with: pip install 'garfield-ml[train]'"
        ) from None
    return save_file, safe_open, SafetensorError


# -- what only torch can keep ---------------------------------------------------------------------


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


def _save_state(state: Mapping[str, Any], path: Path) -> str:
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
    return digesting.digest.hexdigest()


def _load_state(path: Path, digest: str) -> Mapping[str, Any]:
    """Read it again, if it is what was written."""
    import torch

    with path.open("rb") as file:
        found = hashlib.blake2b(digest_size=32)
        while piece := file.read(1 << 20):
            found.update(piece)
        if found.hexdigest() != digest:
            raise ValueError(f"it is not what was written with its {SUFFIX}")
        file.seek(0)
        state = torch.load(file, weights_only=True)
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise ValueError("it holds no state of a node")
    return state


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as problem:  # numpy, safetensors and torch raise some twenty kinds
        if isinstance(problem, OSError) and problem.strerror:
            why = problem.strerror
        else:
            why = (
                (str(problem).strip() or type(problem).__name__).splitlines()[0][:160].rstrip(". ")
            )
        raise ConfigError(f"{path} cannot be read: {why}.") from None
