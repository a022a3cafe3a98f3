"""Who a node is: a name and a role, both in its certificate, both checked.

The certificate of node `worker-3` of role `worker` carries exactly one DNS
name, `worker-3.worker.garfield`. Whoever connects expects that name from the
server's certificate; whoever is connected to reads it from the client's. So
`worker-3` can pose as nobody else, and not as a server either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from garfield.core.errors import ConfigError

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SUFFIX = ".garfield"


DIALS_IN = "dials-in"
"""The address of a node that listens nowhere: it opens the links over which it is asked."""


class PeerAddress(NamedTuple):
    """Where a node listens, and as what it must identify itself."""

    address: str
    """host:port, or unix:/path on the same host, or `DIALS_IN`."""
    role: str = "node"

    @property
    def dials_in(self) -> bool:
        """Whether it is asked over links that it opens to us."""
        return self.address == DIALS_IN


class Identity(NamedTuple):
    """What a certificate says."""

    name: str
    role: str

    @property
    def dns_name(self) -> str:
        """How the two are written in a certificate."""
        return f"{self.name}.{self.role}{_SUFFIX}"


@dataclass(frozen=True)
class Credentials:
    """A node's certificate and key, and the authority that it trusts; made by `certs.load`."""

    identity: Identity
    authority: bytes
    certificate: bytes
    key: bytes = field(repr=False)


def identity(name: str, role: str) -> Identity:
    """The identity of that name and role, both checked: they become part of a DNS name."""
    for what, label in (("name", name), ("role", role)):
        if not _LABEL.fullmatch(label):
            raise ConfigError(
                f"A node's {what} is up to 63 of a-z, 0-9 and inner hyphens, got {label!r}. "
                f"Write it like worker-3."
            )
    return Identity(name, role)


def from_dns_names(names: Iterable[str]) -> Identity | None:
    """The one identity among a certificate's names; None unless there is exactly one."""
    ours = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    if len(ours) != 1 or ours[0].count(".") != 1:
        return None
    name, role = ours[0].split(".")
    return Identity(name, role) if _LABEL.fullmatch(name) and _LABEL.fullmatch(role) else None
