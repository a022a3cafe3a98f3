"""The transport of a run's nodes: with datagrams, where some of its links may lose parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from garfield.apps.settings import Settings

if TYPE_CHECKING:
    from garfield.transport.grpc.transport import GrpcTransport


def transport_of(settings: Settings) -> Callable[..., GrpcTransport]:
    """The class of transport that the nodes of a run have."""
    from garfield.transport.grpc.transport import GrpcTransport

    links = settings.lossy_links
    if links is None:
        return GrpcTransport
    from garfield.transport.datagrams.transport import LossyTransport

    return partial(LossyTransport, links=links)
