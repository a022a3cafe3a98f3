"""A learning state as one float32 vector, as transports carry it, and back to the same bits.

    floats of 4 bytes and less    as they are
    whole numbers, truth values   n = h·2²⁴ + l as the two floats h and l, exact up to |n| < 2⁴⁸

Whole numbers are counters of batches and the like. What is read of them is clipped to ±2⁴⁰: else a
device that claims 2⁴⁸ − 1, time and again, would drive a counter to where no other can send it on.

Names, shapes and dtypes do not travel: both sides know the layout from the networks that they
have built. What does not fit it has another length, and is refused before it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from garfield.core.errors import InputError
from garfield.core.types import Floats
from garfield.fedgan.averaging import State

_HALF = 1 << 24
"""Whole numbers below it are exact in float32."""
_MOST = 1 << 40
"""Of a whole number that is believed: no counter gets there, and many rounds fit above it."""
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class StateLayout:
    """Names, shapes and dtypes of a learning state, in order."""

    entries: tuple[tuple[str, tuple[int, ...], torch.dtype], ...]

    @staticmethod
    def of(state: State) -> StateLayout:
        """The layout of a state; InputError if something in it cannot travel."""
        for name, tensor in state.items():
            if tensor.dtype not in _FLOATS and not _is_whole(tensor.dtype):
                raise InputError(
                    f"{name} is {tensor.dtype}, and states travel as float32. "
                    "Keep it as a float32 in the network."
                )
        return StateLayout(tuple((k, tuple(t.shape), t.dtype) for k, t in state.items()))

    @property
    def length(self) -> int:
        """How many float32 a state takes."""
        return sum(prod(shape) * _width(dtype) for _, shape, dtype in self.entries)

    def to_vector(self, state: State) -> Floats:
        """(length,) float32; nothing of it is shared with the state."""
        found = np.empty(self.length, np.float32)
        for name, _, dtype, rows in self._rows_of(found):
            flat = state[name].detach().reshape(-1)
            if _is_whole(dtype):
                rows[0], rows[1] = _halves(name, flat.to(torch.int64).numpy())
            else:
                rows[0] = flat.float().numpy()
        return found

    def change(self, before: State, after: State) -> Floats:
        """(length,) float32: from one state to another, for `changed` to add.

        Of whole numbers the difference is in the lower place, where it is small: that of halves is
        16 million as soon as a counter passes a multiple of it.
        """
        found = self.to_vector(after) - self.to_vector(before)
        for name, _, dtype, rows in self._rows_of(found):
            if _is_whole(dtype):
                steps = after[name].to(torch.int64) - before[name].to(torch.int64)
                rows[0], rows[1] = 0.0, steps.reshape(-1).numpy()
        return found

    def changed(self, state: State, change: npt.NDArray[np.float64]) -> State:
        """A state plus a change, whole numbers rounded to the nearest that is believed."""
        found: State = {}
        for name, shape, dtype, rows in self._rows_of(change):
            if not _is_whole(dtype):
                part = torch.from_numpy(rows[0].reshape(shape))
                found[name] = (state[name].double() + part).to(dtype)
                continue
            part = torch.from_numpy((rows[0] * _HALF + rows[1]).reshape(shape))
            number = (state[name].double() + part).round()
            found[name] = number.clamp(*_believed(dtype)).to(dtype)
        return found

    def to_state(self, vector: Floats) -> State:
        """The state that was written; nothing of it is shared with the vector.

        Whole numbers are clipped to what is believed. InputError for those that no state has, which
        only a liar sends.
        """
        state: State = {}
        for name, shape, dtype, rows in self._rows_of(vector):
            if _is_whole(dtype):
                flat = _whole(name, rows[0], rows[1], dtype)
            else:
                flat = torch.from_numpy(rows[0].copy()).to(dtype)
            state[name] = flat.reshape(shape)
        return state

    def _rows_of(
        self, vector: npt.NDArray[Any]
    ) -> Iterator[tuple[str, tuple[int, ...], torch.dtype, npt.NDArray[Any]]]:
        """Each entry, and its part of a vector: (1, count), or (2, count) for high and low."""
        if vector.shape != (self.length,):
            raise InputError(f"A state has {self.length} numbers, got {vector.shape}.")
        at = 0
        for name, shape, dtype in self.entries:
            end = at + prod(shape) * _width(dtype)
            yield name, shape, dtype, vector[at:end].reshape(_width(dtype), -1)
            at = end


def _is_whole(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex


def _width(dtype: torch.dtype) -> int:
    return 2 if _is_whole(dtype) else 1


def _halves(name: str, whole: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(whole) and int(np.abs(whole).max()) >= _HALF**2:
        raise InputError(f"{name} has a number of 2⁴⁸ or more, which does not travel exactly.")
    high = whole // _HALF
    return high.astype(np.float32), (whole - high * _HALF).astype(np.float32)


def _whole(name: str, high: Floats, low: Floats, dtype: torch.dtype) -> Tensor:
    top, bottom = high.astype(np.float64), low.astype(np.float64)
    fits = (np.abs(top * _HALF + bottom) < _HALF**2) & (bottom >= 0) & (bottom < _HALF)
    if not (fits & (top == np.floor(top)) & (bottom == np.floor(bottom))).all():
        raise InputError(f"{name} is not made of whole numbers.")
    number = torch.from_numpy((top * _HALF + bottom).astype(np.int64))
    least, most = _range(dtype)
    if len(number) and not least <= int(number.min()) <= int(number.max()) <= most:
        raise InputError(f"{name} has a number that is none of {dtype}.")
    return number.clamp(*_believed(dtype)).to(dtype)


def _range(dtype: torch.dtype) -> tuple[int, int]:
    return (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)


def _believed(dtype: torch.dtype) -> tuple[int, int]:
    least, most = _range(dtype)
    return max(least, -_MOST), min(most, _MOST)
