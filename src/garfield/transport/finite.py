"""Whether every number of a long vector is finite, asked on a loop that has others to serve."""

from __future__ import annotations

import asyncio

from garfield.kernels.finite import all_finite
from garfield.transport.contract import Payload

_PIECE = 1 << 18  # numbers: a megabyte or two, some tenths of a millisecond


async def all_finite_by_pieces(row: Payload) -> bool:
    """Ask piece by piece, giving way to the loop's other tasks between two pieces."""
    for lo in range(0, len(row), _PIECE):
        if not all_finite(row[lo : lo + _PIECE]):
            return False
        await asyncio.sleep(0)
    return True
