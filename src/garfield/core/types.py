"""The shapes that travel between the parts."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = Any
"""(d,) of any supported kind: numpy, torch or tensorflow."""

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
"""A numpy array of floats, of any shape."""

Matrix: TypeAlias = npt.NDArray[np.float64]
"""A small (n, n) or (n,) array of exact arithmetic on rows: distances, weights, scores."""

Indices: TypeAlias = npt.NDArray[np.intp]
"""Positions of rows, ascending unless said otherwise."""

Flags: TypeAlias = npt.NDArray[np.bool_]
"""True or false per row, or per row and coordinate."""
