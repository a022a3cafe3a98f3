"""Where a node listens: host:port, [ipv6]:port, or unix:/path on one host."""

from __future__ import annotations

import re
from ipaddress import ip_address

from garfield.core.errors import ConfigError

_HOST = r"\[[0-9a-fA-F:.]+(%\w+)?\]|[A-Za-z0-9._-]+"
_ADDRESS = re.compile(rf"({_HOST}):(?P<port>[0-9]{{1,5}})", re.ASCII)
_LARGEST_PORT = 65535


def check_address(whose: str, address: object, *, least_port: int = 1) -> None:
    """Refuse what is not host:port."""
    found = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if found is None or not least_port <= int(found["port"]) <= _LARGEST_PORT:
        raise ConfigError(
            f"{whose} needs an address like 10.0.0.2:7000, a host and a port of "
            f"{least_port} to {_LARGEST_PORT}, got {address!r}."
        )


def check_listen(whose: str, address: str) -> None:
    """Refuse what nobody can listen on; port 0 is one that the system chooses."""
    if not address.startswith("unix:"):
        check_address(whose, address, least_port=0)


def is_loopback(address: str) -> bool:
    """Whether only this host can reach it."""
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    if address.startswith("unix:") or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name, which may be anywhere
        return False
