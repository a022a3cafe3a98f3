"""Vectors of real numbers as whole ones modulo 2³² or 2⁶⁴, whose sum does not overflow.

A number x within ±clip becomes round(x · scale) modulo 2^bits, with scale = ⌊(2^(bits−1) − 1) / n⌋
/ clip: so n of them add up to less than half of the range, and the sum's sign is known. Rounding
costs at most half a step of 1/scale for each number, and so does the mean: with 32 bits, n = 80 and
clip = 1 that is 1.9e-8. With 64 bits steps are finer than a float64 of that size, 2⁻⁵³ of clip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from garfield.core.bounds import Within, check_number
from garfield.core.errors import ConfigError, InputError

Words: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Whole numbers modulo 2^bits: uint32 or uint64."""

_ROUNDING = 2.0**-52  # of a float64, for a product and a sum


@dataclass(frozen=True)
class FixedPoint:
    """How the vectors of at most `most` devices are written."""

    most: int
    """Devices whose vectors are added up, at most."""
    clip: float
    """The largest magnitude that a number may have."""
    bits: Literal[32, 64] = 32

    def __post_init__(self) -> None:
        check_number("most", self.most, Within(1, 2**20))
        check_number("clip", self.clip, Within(0, above=True))
        if self.bits not in (32, 64):
            raise ConfigError(f"bits must be 32 or 64, got {self.bits}.")

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the words."""
        return np.dtype(np.uint32 if self.bits == 32 else np.uint64)

    @property
    def scale(self) -> float:
        """Steps in one."""
        return self._steps / self.clip

    @property
    def error(self) -> float:
        """How far the decoded mean may be from the mean of what was encoded, at most."""
        return 0.5 / self.scale + 2 * _ROUNDING * self.clip

    def encode(self, vector: npt.ArrayLike) -> Words:
        """A vector as words; InputError for what is not finite, or beyond the clip."""
        numbers = np.asarray(vector, np.float64).reshape(-1)
        largest = float(np.abs(numbers).max(initial=0.0))
        if not largest <= self.clip:  # also for NaN
            raise InputError(
                f"A vector to be added securely holds numbers within ±{self.clip:g}, and this one "
                f"{largest:g}. Give a larger clip; the steps grow with it."
            )
        steps = np.rint(numbers * self.scale)
        np.clip(steps, -self._largest, self._largest, out=steps)
        return steps.astype(np.int64).astype(self.dtype)  # two's complement is modulo 2^bits

    @property
    def _largest(self) -> float:
        """As many as a float64 can say: the nearest one may be beyond the range."""
        nearest = float(self._steps)
        return nearest if int(nearest) <= self._steps else float(np.nextafter(nearest, 0.0))

    @property
    def _steps(self) -> int:
        """How many steps the largest number may have."""
        half: int = 2 ** (self.bits - 1)
        return (half - 1) // self.most

    def decode(self, total: Words) -> npt.NDArray[np.float64]:
        """The sum of vectors from the sum of their words."""
        if total.dtype != self.dtype:
            raise InputError(f"Words of {self.bits} bits are {self.dtype}, got {total.dtype}.")
        signed = total.view(np.int32 if self.bits == 32 else np.int64)
        return signed.astype(np.float64) / self.scale
