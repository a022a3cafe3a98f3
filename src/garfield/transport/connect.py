"""A node's transport from where everybody is: what a training script calls first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from garfield.core.errors import MissingDependency, UnknownName
from garfield.transport.contract import Transport

if TYPE_CHECKING:
    from garfield.transport.datagrams.links import LossyLinks
    from garfield.transport.grpc.carriers import Carrier
    from garfield.transport.grpc.transport import GrpcTransport
    from garfield.transport.identity import Credentials, PeerAddress


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

    A node that nobody can call (behind NAT, say) has "dials-in" in the place of its address: it
    opens links to all that have one, and they pull over these. Such nodes cannot reach each other.
    """
    if name not in nodes:
        raise UnknownName("a node of this cluster", name, nodes)
    from garfield.transport.addresses import check_address
    from garfield.transport.identity import DIALS_IN, PeerAddress

    for peer, address in nodes.items():
        if not address.startswith("unix:") and address != DIALS_IN:
            check_address(peer, address, least_port=0 if peer == name else 1)
    peers = {peer: PeerAddress(address, role_of(peer)) for peer, address in nodes.items()}
    credentials = None
    if certificates is not None:
        from garfield.transport.certs import load

        credentials = load(Path(certificates), name)
    called = [peer for peer, address in nodes.items() if address != DIALS_IN]
    listens = name in called
    return grpc_transport(
        name, peers, listen=nodes[name] if listens else None, credentials=credentials,
        insecure_ok=insecure_ok, same_host=same_host, dials=() if listens else called,
        takes_links=listens and len(called) < len(nodes),
    )  # fmt: skip


def grpc_transport(
    name: str,
    peers: Mapping[str, PeerAddress],
    *,
    listen: str | None = "127.0.0.1:0",
    credentials: Credentials | None = None,
    insecure_ok: bool = False,
    same_host: str | Path | None = None,
    links: LossyLinks | None = None,
    dials: Collection[str] = (),
    takes_links: bool = False,
) -> GrpcTransport:
    """A GrpcTransport with the carriers that its node needs.

    `same_host` is a directory that the peers on this host share: long vectors between them are
    passed as sealed memory. On `links` that are lossy, vectors travel as datagrams.
    """
    try:
        from garfield.transport.grpc.transport import GrpcTransport
    except ImportError:
        raise MissingDependency(
            "Nodes talk by gRPC. Install it with: pip install 'garfield-ml[train]'"
        ) from None
    carriers: list[Carrier] = []
    if links is not None:
        from garfield.transport.datagrams.carrier import Datagrams

        carriers.append(Datagrams(name, links))
    if same_host is not None:
        from garfield.transport.same_host.carrier import SealedMemory

        carriers.append(SealedMemory(name, same_host))
    return GrpcTransport(
        name, peers, listen=listen, credentials=credentials, insecure_ok=insecure_ok,
        carriers=carriers, dials=dials, takes_links=takes_links,
    )  # fmt: skip


def role_of(name: str) -> str:
    """worker-3 is a worker."""
    return name.partition("-")[0]
