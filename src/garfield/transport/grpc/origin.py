"""Where a call comes from, as gRPC writes it: ipv4:10.0.0.2:51234, ipv6:%5B::1%5D:51234, unix:."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple
from urllib.parse import unquote

Address = IPv4Address | IPv6Address


class Origin(NamedTuple):
    """One end of a connection."""

    host: Address
    port: int


def origin(peer: str) -> Origin | None:
    """The far end of a call's connection, as its context names it; None for a unix socket.

    >>> origin("ipv4:10.0.0.2:51234")
    Origin(host=IPv4Address('10.0.0.2'), port=51234)
    """
    family, _, rest = unquote(peer).partition(":")
    if family not in ("ipv4", "ipv6"):
        return None
    host, _, port = rest.rpartition(":")
    return Origin(plain(host.strip("[]")), int(port))


def plain(host: str) -> Address:
    """The address of a host, without its zone, and as IPv4 if it is one in disguise."""
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
