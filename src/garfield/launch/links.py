"""How the nodes of a run on this machine reach each other.

By unix sockets, and by sealed memory for long vectors, unless a trial wants
loopback as between hosts: plain TCP, or mutual TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from garfield.core.errors import ConfigError
from garfield.runs.scratch import scratch_directory

if TYPE_CHECKING:
    from garfield.transport.grpc.transport import GrpcTransport
    from garfield.transport.identity import PeerAddress

LinkKind = Literal["memory", "tcp", "tls"]
LONGEST_NAME = 100  # a unix socket's path may have 107 bytes


@dataclass(frozen=True)
class Link:
    """A kind of link, and a directory of the run's own that only this user can enter."""

    kind: LinkKind
    directory: Path

    def transport(
        self, name: str, peers: Mapping[str, PeerAddress], make: Callable[..., GrpcTransport]
    ) -> GrpcTransport:
        """Make a node's transport to its peers by `make`: `connect.grpc_transport`, or alike."""
        if self.kind == "memory":
            here = f"unix:{self.directory / name}"
            return make(name, peers, listen=here, same_host=self.directory / "vectors")
        if self.kind == "tcp":
            return make(name, peers)
        from garfield.transport.certs import load

        return make(name, peers, credentials=load(self.directory, name))


@contextmanager
def link(kind: LinkKind, names: Sequence[str]) -> Iterator[Link]:
    """Make all that these nodes need to meet; nothing is left of it afterwards."""
    with scratch_directory() as directory:
        longest = directory / max(names, key=len)
        if kind == "memory" and len(str(longest)) > LONGEST_NAME:
            raise ConfigError(
                f"{longest} is too long for a socket: {len(str(longest))} characters of at most "
                f"{LONGEST_NAME}. Set TMPDIR to a shorter path."
            )
        if kind == "tls":
            from garfield.transport.certs import make
            from garfield.transport.connect import role_of

            make(directory, {name: role_of(name) for name in names})
        yield Link(kind, directory)
