"""Where to cut in the next epoch: the settings say, or a planner does, from measurements.

The link is measured before every epoch. If it carries what it did, the split stays; otherwise
it is planned anew, from sizes of the layers (one sample passed through, once), the stored size
of the images, the servers' load, and, for a planner that predicts time, seconds of every layer
on both sides: the client times its own, a server is asked for its own, and for what a sample
costs before its first layer (`preparation`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from garfield.core.errors import SplitError
from garfield.data.stored import data_directory
from garfield.split import planner, wire
from garfield.split.client.bandwidth import Bandwidth, measure
from garfield.split.client.preparation import preparation
from garfield.split.models import SPLIT_MODELS
from garfield.split.objects import INDEX_NAME
from garfield.split.profile import (
    ModelProfile,
    ProfileCache,
    profile_key,
    profile_sizes,
    profile_times,
)

if TYPE_CHECKING:
    from garfield.split.client.data_set import DataSet
    from garfield.split.client.loader import SplitLoader
    from garfield.split.client.servers import Servers

_TIMED_BATCH = 16


@dataclass(frozen=True)
class Planning:
    """How an epoch's split came about."""

    split: int
    why: str
    bandwidth: Bandwidth | None = None
    """What the link carried when it was planned; None where the settings say the split."""
    plan: planner.Plan | None = None


def planned(loader: SplitLoader, before: Planning | None) -> Planning:
    """The split of the next epoch."""
    loading, servers = loader.loading, loader.servers
    if loading.split is not None:
        return Planning(loading.split, "as the settings say")
    if loading.baseline or servers is None:
        return Planning(0, "baseline: images are streamed")
    bandwidth = measure(servers.probe)
    if before is not None and not bandwidth.differs(before.bandwidth):
        return replace(before, why="the link carries what it did")
    now = situation(loader, bandwidth.bps)
    plan = planner.choose(now, loading.planner)
    if loader.keeps_features and plan.candidates:
        # each feature travels once, so what counts is its size, and work that need not come again
        smallest = min(plan.candidates, key=lambda split: (now.sample_bytes(split), -split))
        return Planning(smallest, "features are kept: the smallest, once", bandwidth, plan)
    return Planning(plan.split, plan.why, bandwidth, plan)


def situation(loader: SplitLoader, bandwidth_bps: float) -> planner.Situation:
    """All that is known before an epoch."""
    assert loader.servers is not None
    loading, sampler = loader.loading, loader.sampler
    costs = None
    if loading.planner == "predictive":
        costs = measured_costs(loader, loader.servers)
    return planner.situation_of(
        profile_sizes(loader.model, loader.input_shape),
        stored_bytes=loader.data.stored_bytes_per_sample,
        batch=max(1, sampler.batch // sampler.ranks),
        bandwidth_bps=bandwidth_bps,
        freeze=loader.freeze,
        workers=sampler.ranks,
        load=planner.ServerLoad.from_status(loader.servers.status()),
        costs=costs,
        iterations=sampler.batches,
        feature_bytes=0.5 if loading.features == "float16" else 1.0,
    )


def measured_costs(loader: SplitLoader, servers: Servers) -> planner.Costs:
    """Seconds of a sample on both sides. What a server takes to decode one we take for as much
    longer, or less, as our layers do."""
    client = client_profile(loader)
    server = server_profile(client, servers, loader.data) or client
    prepared = preparation(loader)
    slower = sum(client.forward_s) / max(sum(server.forward_s), 1e-9)
    return planner.Costs.of(
        client, server,
        server_prepare_s=prepared.read_s + prepared.decode_s,
        client_prepare_s=prepared.decode_s * slower,
    )  # fmt: skip


def client_profile(loader: SplitLoader) -> ModelProfile:
    """Seconds of every layer here; measured once for a model and kept."""
    model, shape, freeze = loader.model, loader.input_shape, loader.freeze
    kept = ProfileCache(data_directory() / "split-profiles")
    key = profile_key(model, "client", shape, freeze)
    return kept.get_or_make(
        key,
        lambda: profile_times(model, batch=_TIMED_BATCH, freeze=freeze, input_shape=shape),
    )


def server_profile(client: ModelProfile, servers: Servers, data: DataSet) -> ModelProfile | None:
    """The client's profile with a server's seconds of the frozen layers; None if none tells."""
    if client.model not in SPLIT_MODELS or client.freeze is None:
        return None  # servers time no layers of the user's own
    split = client.freeze + 1
    request = wire.ProfileRequest(
        data.url, split, input_shape=client.input_shape, model=client.model
    )
    try:
        access = data.access([INDEX_NAME])  # the right to read there is what a server asks for
        told = servers.post("/v1/profile", wire.encode_request(request), access)
        seconds = [float(each) for each in told["layers"]["layer_seconds"]]
    except (SplitError, KeyError, TypeError, ValueError):
        return None  # the plan is then made as if both sides were alike
    if len(seconds) != split or min(seconds) < 0:
        return None
    layers = tuple(
        replace(layer, forward_s=seconds[at] if at < split else layer.forward_s)
        for at, layer in enumerate(client.layers)
    )
    return replace(client, layers=layers)


def told(planning: Planning) -> dict[str, object]:
    """A planning as an event of a run."""
    link = planning.bandwidth
    return {
        "event": "planned",
        "split": planning.split,
        "why": planning.why,
        "bandwidth_bps": link.bps if link else None,
        "planner": planning.plan.planner if planning.plan else None,
    }
