"""Turns: every attempt at a round has a number of its own, and later ones are larger.

    turn = token · 2²⁰ + attempt at a round since that server leads, counted from 1

The token is that of the primary's lease, which grows with every change of leader. So what an
earlier primary says is told from what the present one says by a comparison: devices follow the
largest turn they have heard of and refuse everything below it, whoever says it. A turn fits the 32
bits that transports have for it: 4095 leaders, of a million rounds each.
"""

from __future__ import annotations

from garfield.core.errors import RunError

_ATTEMPTS = 1 << 20
LARGEST_TOKEN = (1 << 12) - 1


def turn(token: int, attempt: int) -> int:
    """The number of an attempt, the first being 1, under a token."""
    if not 1 <= token <= LARGEST_TOKEN:
        raise RunError(
            f"Servers of this training have changed {token} times, and {LARGEST_TOKEN} is what "
            "turns can tell apart. Begin another run from its weights."
        )
    if not 1 <= attempt < _ATTEMPTS:
        raise RunError(
            f"A server leads for at most {_ATTEMPTS - 1} rounds in a row. Resume the run: what "
            "was learned is kept."
        )
    return token * _ATTEMPTS + attempt
