"""What the link between store and client carries, measured and not configured.

Some bytes of nothing are asked of a server, more and more of them, until a transfer takes long
enough. The first of them do not count: buffers and shapers let a burst through at once. That
costs about half a second, once an epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from garfield.core.errors import ConfigError

LEAST_BYTES, MOST_BYTES = 64 << 10, 64 << 20
BURST = 64 << 10
"""Bytes at the start of each transfer that do not count."""
ENOUGH_S = 0.25
"""A transfer that takes this long says what the link carries."""
_UNITS = {"bps": 1.0, "kbps": 1e3, "mbps": 1e6, "gbps": 1e9, "tbps": 1e12}


@dataclass(frozen=True)
class Bandwidth:
    """What was measured last."""

    bps: float
    """Bits a second."""
    bytes: int
    """How many bytes it was measured on."""
    seconds: float
    busy_s: float = 0.0
    """The processor's time that receiving all of them took here."""

    def differs(self, other: Bandwidth | None, by: float = 0.2) -> bool:
        """Whether it is another link than the other measurement's, beyond noise."""
        return other is None or abs(self.bps - other.bps) > by * other.bps


def measure(probe: Callable[[int, int], float]) -> Bandwidth:
    """Ask for more until the transfer is long enough.

    `probe(burst, count)` returns the seconds between the end of the first `burst` bytes and that
    of `count` more.
    """
    count, total, busy = LEAST_BYTES, 0, time.process_time()
    while True:
        seconds = max(probe(BURST, count), 1e-6)
        total += BURST + count
        if seconds >= ENOUGH_S or count >= MOST_BYTES:
            return Bandwidth(8 * count / seconds, total, seconds, time.process_time() - busy)
        growth = min(8.0, max(2.0, 1.5 * ENOUGH_S / seconds))
        count = min(MOST_BYTES, int(count * growth))


def parse_bandwidth(text: str) -> float:
    """Bits a second, of a text such as 1Gbps, 150 Mbps, or a plain number of bits."""
    words = text.strip().lower().replace(" ", "").replace("bit/s", "bps")
    unit = next(
        (unit for unit in sorted(_UNITS, key=len, reverse=True) if words.endswith(unit)), ""
    )
    number = words.removesuffix(unit) if unit else words
    try:
        found = float(number) * (_UNITS[unit] if unit else 1.0)
    except ValueError:
        found = float("nan")
    if not 0 < found < float("inf"):
        raise ConfigError(f"A bandwidth is written as 1Gbps, 150Mbps or 64kbps, got {text!r}.")
    return found


def bandwidth_text(bps: float) -> str:
    """Bits a second in words."""
    for unit, name in ((1e9, "Gbps"), (1e6, "Mbps"), (1e3, "kbps")):
        if bps >= unit:
            return f"{bps / unit:.3g} {name}"
    return f"{bps:.3g} bps"
