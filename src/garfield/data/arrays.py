"""Samples of a user's own: any arrays or tensors, one input and one target a sample.

What each is follows from its numbers:

    inputs    floats            what the model takes, as float32
              whole numbers     tokens, as int64
              bytes             images if a sample has two or three dimensions, (height, width),
                                (height, width, channels) or (channels, height, width): the model
                                takes (channels, height, width) between -1 and 1
    targets   whole numbers     classes, counted from 0: one a sample, or several
              floats            numbers to come close to

Without samples to test on, every tenth is held out, drawn by the run's seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from garfield.core.errors import InputError
from garfield.data.contract import Split
from garfield.data.dataset import is_train, normalised
from garfield.kernels.finite import all_finite

NAMES = ("x", "y", "x_test", "y_test")
_OLDER_NAMES = {"x_train": "x", "y_train": "y"}
_HELD_OUT = 10
_DRAWN = 5  # beside the seed: what is held out, and nothing else that is drawn
_CHANNELS = (1, 3, 4)
_AT_ONCE = 1 << 20  # numbers looked at at a time

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class ArrayData:
    """Inputs and targets as arrays of any shape. Made by `array_data`."""

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array

    def __repr__(self) -> str:
        counts = f"{len(self.x_train)} train, {len(self.x_test)} test"
        return f"<data of {self.x_train.dtype} {self.shape}: {counts}>"

    @property
    def class_count(self) -> int | None:
        """One more than the largest label; None if targets are no classes."""
        if self.y_train.dtype.kind != "i":
            return None
        return 1 + max(int(self.y_train.max()), int(self.y_test.max()), 0)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.prepare(self.x_train[:1]).shape[1:])

    def inputs(self, split: Split) -> Array:
        return self.x_train if is_train(split) else self.x_test

    def targets(self, split: Split) -> Array:
        return self.y_train if is_train(split) else self.y_test

    def prepare(self, stored: Array) -> Array:
        """Bytes as images between -1 and 1; anything else as it is."""
        return normalised(stored, (0.5,), (0.5,)) if stored.dtype == np.uint8 else stored


def array_data(given: Any, *, seed: int = 0, where: str = "data") -> ArrayData:
    """Data of (x, y) or (x, y, x_test, y_test), as a tuple or by these names.

    InputError says what is wrong with them, with numbers; `where` is what they are called.
    """
    parts = _parts(given, where)
    x, y = _inputs(f"{where}: x", parts["x"]), _targets(f"{where}: y", parts["y"])
    _require_alike(where, "x", x, "y", y)
    if "x_test" not in parts:
        made = _split(where, x, y, seed)
    else:
        x_test = _inputs(f"{where}: x_test", parts["x_test"])
        y_test = _targets(f"{where}: y_test", parts["y_test"])
        _require_alike(where, "x_test", x_test, "y_test", y_test)
        made = ArrayData(x, y, x_test, y_test)
    _require_one_kind(where, "x", made.x_train, made.x_test)
    _require_one_kind(where, "y", made.y_train, made.y_test)
    return made


def _parts(given: Any, where: str) -> dict[str, Any]:
    if isinstance(given, Mapping):
        found = {_OLDER_NAMES.get(str(name), str(name)): given[name] for name in given}
        if set(found) not in ({*NAMES[:2]}, {*NAMES}):
            raise InputError(
                f"{where} holds {', '.join(map(str, given)) or 'nothing'}. It must hold x and y, "
                "and may hold x_test and y_test beside them."
            )
        return found
    if isinstance(given, (tuple, list)) and len(given) in (2, 4):
        return dict(zip(NAMES, given, strict=False))
    kind = f"{len(given)} parts" if isinstance(given, (tuple, list)) else type(given).__name__
    raise InputError(
        f"{where} is {kind}. It must be (x, y) or (x, y, x_test, y_test): arrays or tensors."
    )


def _inputs(name: str, value: Any) -> Array:
    array = _array(name, value)
    if not array.ndim:
        raise InputError(f"{name} is one number. It must hold an input for every sample.")
    if array.dtype == np.uint8 and array.ndim in (3, 4):
        first = array.ndim == 4 and array.shape[1] in _CHANNELS and array.shape[3] not in _CHANNELS
        return np.ascontiguousarray(np.moveaxis(array, 1, 3)) if first else array
    return _checked(name, _as(np.float32 if array.dtype.kind in "fb" else np.int64, array))


def _targets(name: str, value: Any) -> Array:
    array = _array(name, value)
    if not array.ndim:
        raise InputError(f"{name} is one number. It must hold a target for every sample.")
    return _checked(name, _as(np.float32 if array.dtype.kind == "f" else np.int64, array))


def _as(kind: type[Any], array: Array) -> Array:
    with np.errstate(over="ignore"):  # what is beyond float32 is found by `_checked`
        return array.astype(kind, copy=False)


def _array(name: str, value: Any) -> Array:
    if hasattr(value, "detach"):  # a tensor, maybe of a device
        value = value.detach().cpu().numpy()
    try:
        array = np.asarray(value)
    except ValueError as problem:
        raise InputError(
            f"{name} is no array: {problem} Make all samples of one shape, by padding say."
        ) from None
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"{name} holds {_kind(array)}, and a model takes numbers. Encode them as numbers first."
        )
    return array


def _kind(array: Array) -> str:
    return {"U": "texts", "S": "texts", "T": "texts", "M": "dates", "c": "complex numbers"}.get(
        array.dtype.kind, f"values of type {array.dtype}"
    )


def _checked(name: str, array: Array) -> Array:
    """The same array; InputError if a number of it is not finite."""
    if array.dtype.kind != "f":
        return array
    flat = array.reshape(-1)
    for at in range(0, flat.size, _AT_ONCE):
        part = np.ascontiguousarray(flat[at : at + _AT_ONCE])
        if not all_finite(part):
            bad = ~np.isfinite(array)
            first = int(np.argwhere(bad)[0][0])
            raise InputError(
                f"{name} holds {int(bad.sum())} numbers that are NaN, infinite or beyond float32, "
                f"the first in sample {first} of {len(array)}. Fill them in, or leave these "
                "samples out."
            )
    return array


def _require_alike(where: str, x_name: str, x: Array, y_name: str, y: Array) -> None:
    if len(x) != len(y):
        raise InputError(
            f"{where}: {x_name} has {len(x)} samples and {y_name} has {len(y)}. There must be one "
            "target for every input."
        )
    if not x.size or not y.size:
        empty, array = (x_name, x) if not x.size else (y_name, y)
        raise InputError(f"{where}: {empty} is empty, its shape is {array.shape}.")


def _require_one_kind(where: str, name: str, train: Array, test: Array) -> None:
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise InputError(
            f"{where}: a sample of {name} is {train.dtype} {train.shape[1:]} and one of "
            f"{name}_test {test.dtype} {test.shape[1:]}. They must be alike."
        )


def _split(where: str, x: Array, y: Array, seed: int) -> ArrayData:
    train, test = held_out(len(x), seed, where)
    return ArrayData(x[train], y[train], x[test], y[test])


def held_out(count: int, seed: int, where: str) -> tuple[Array, Array]:
    """Which samples to train on and which to test on, where nobody has said."""
    if count < 2:
        raise InputError(f"{where} holds {count} sample, and one is held out to test on. Add more.")
    order = np.random.default_rng([seed, _DRAWN]).permutation(count)
    tests = max(1, count // _HELD_OUT)
    return np.sort(order[tests:]), np.sort(order[:tests])
