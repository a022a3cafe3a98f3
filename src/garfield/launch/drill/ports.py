"""Ports for nodes that are ended and started again at the same place."""

from __future__ import annotations

import socket
from pathlib import Path
from random import Random

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000


def lasting_ports(count: int) -> list[int]:
    """Ports of loopback that are free, and that the system gives to no connection.

    A port of the system's own range may be taken while its node is down: by one of the many
    connections that are attempted meanwhile, and even by one to that very port.
    """
    highest = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    rng, found = Random(), set[int]()
    while len(found) < count:
        port = rng.randrange(_LOWEST, highest)
        with socket.socket() as attempt:
            try:
                attempt.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.add(port)
    return sorted(found)
