"""Which links of a run are lossy, those of its first honest workers, and the transport for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from garfield.apps.settings import Settings
from garfield.transport.datagrams.links import LossyLinks

if TYPE_CHECKING:
    from garfield.transport.grpc.transport import GrpcTransport


def lossy_links(settings: Settings) -> LossyLinks | None:
    """None where nothing travels by datagrams."""
    if not settings.lossy_workers:
        return None
    s = settings
    honest = [name for name in s.worker_names if name not in s.liars]
    return LossyLinks(
        frozenset(honest[: s.lossy_workers]), frozenset(s.server_names), models=s.lossy_models,
        fill=s.fill, loss=s.loss, seed=s.seed,
    )  # fmt: skip


def transport_of(settings: Settings) -> Callable[..., GrpcTransport]:
    """The class of transport that the nodes of a run have."""
    from garfield.transport.grpc.transport import GrpcTransport

    links = lossy_links(settings)
    if links is None:
        return GrpcTransport
    from garfield.transport.datagrams.transport import LossyTransport

    return partial(LossyTransport, links=links)
