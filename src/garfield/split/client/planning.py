"""Where to cut in the next epoch: the settings say, or a planner does, from measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from garfield.split.client.bandwidth import Bandwidth, measure

if TYPE_CHECKING:
    from garfield.split.client.loader import SplitLoader


@dataclass(frozen=True)
class Planning:
    """How an epoch's split came about."""

    split: int
    why: str
    bandwidth: Bandwidth | None = None
    """What the link carried when it was planned; None where the settings say the split."""


def planned(loader: SplitLoader, before: Planning | None) -> Planning:
    """The split of the next epoch; planned anew if the link has changed."""
    loading, servers = loader.loading, loader.servers
    if loading.baseline or servers is None:
        return Planning(0, "baseline: images are streamed")
    if loading.split is not None:
        return Planning(loading.split, "as the settings say")
    bandwidth = measure(servers.probe)
    if before is not None and not bandwidth.differs(before.bandwidth):
        return replace(before, bandwidth=before.bandwidth)
    raise NotImplementedError
