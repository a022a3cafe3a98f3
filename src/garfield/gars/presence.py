"""How many values of a coordinate arrived, where parts of rows may be lost on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from garfield.core.types import Flags

_BLOCK = 1 << 15  # counts of so many coordinates stay in cache while all rows are added


def fewest_values(present: Sequence[Flags], *, enough: int) -> tuple[int | None, int]:
    """The coordinate that the fewest values arrived of, and how many did.

    None and the number of whole rows where those alone are `enough`; they are told by a look at
    each row, and the others are counted only where these do not do.
    """
    partial = [here for here in present if not here.all()]
    whole = len(present) - len(partial)
    if whole >= enough or not partial:
        return None, whole
    counts: type[Any] = np.uint8 if len(partial) < 256 else np.uint32
    at, fewest = 0, len(partial)
    for lo in range(0, len(partial[0]), _BLOCK):
        block = np.zeros(min(_BLOCK, len(partial[0]) - lo), counts)
        for here in partial:
            block += here[lo : lo + _BLOCK]
        lowest = int(block.argmin())
        if block[lowest] < fewest:
            at, fewest = lo + lowest, int(block[lowest])
    return at, whole + fewest
