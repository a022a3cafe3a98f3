"""How the nodes of a run talk: by gRPC, some of their links lossy where the application says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from garfield.apps.settings import Settings

if TYPE_CHECKING:
    from garfield.transport.grpc.transport import GrpcTransport


def transport_of(settings: Settings) -> Callable[..., GrpcTransport]:
    """What makes the transports of a run's nodes."""
    from garfield.transport.connect import grpc_transport

    return partial(grpc_transport, links=settings.lossy_links)
