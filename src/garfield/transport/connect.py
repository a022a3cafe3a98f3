"""A node's transport from where everybody is: what a training script calls first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from garfield.core.errors import MissingDependency, UnknownName
from garfield.transport.contract import Transport


def connect(
    name: str,
    nodes: Mapping[str, str],
    *,
    certificates: str | Path | None = None,
    insecure_ok: bool = False,
    same_host: str | Path | None = None,
) -> Transport:
    """The gRPC transport of node `name` among `nodes`, names to host:port.

    With a directory of `certificates` (see ``garfield certs``) all traffic is mutual TLS; a
    node's role is what its name begins with. Without, nodes listen on loopback only, unless
    `insecure_ok`. Nodes of one host that share the directory `same_host` pass large vectors to
    each other without copying them.
    """
    if name not in nodes:
        raise UnknownName("a node of this cluster", name, nodes)
    try:
        from garfield.transport.grpc.transport import GrpcTransport
        from garfield.transport.identity import Peer
    except ImportError:
        raise MissingDependency(
            "Nodes talk by gRPC. Install it with: pip install 'garfield[train]'"
        ) from None
    peers = {peer: Peer(address, role_of(peer)) for peer, address in nodes.items()}
    credentials = None
    if certificates is not None:
        from garfield.transport.certs import load

        credentials = load(Path(certificates), name)
    return GrpcTransport(
        name, peers, listen=nodes[name], credentials=credentials, insecure_ok=insecure_ok,
        same_host=same_host,
    )  # fmt: skip


def role_of(name: str) -> str:
    """worker-3 is a worker."""
    return name.partition("-")[0]
