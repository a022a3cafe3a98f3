"""Where to cut in the next epoch: the settings say, or a planner does, from measurements.

The link is measured before every epoch. If it carries what it did, the split stays; otherwise
it is planned anew, from sizes of the layers (one sample passed through, once), the stored size
of the images, the servers' load, and, but for the thesis's planner, seconds of every layer
on both sides: the client times its own, a server is asked for its own, and then by as many requests
as a training has under way how long a sample really takes (`server_speed`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from garfield.core.errors import SplitError
from garfield.data.stored import data_directory
from garfield.split import planner, wire
from garfield.split.client.bandwidth import Bandwidth, measure
from garfield.split.client.server_speed import ServerSpeed, measured_speed
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

_TIMED_BATCH = 32
"""So small that a client which cannot hold its training batch may measure, too."""


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
    now = situation(loader, bandwidth)
    candidates = planner.candidates(now)
    if loader.keeps_features and candidates:
        # each feature travels once, so what counts is its size, and work that need not come again
        smallest = min(candidates, key=lambda split: (now.sample_bytes(split), -split))
        return Planning(smallest, "features are kept: the smallest, once", bandwidth)
    plan = planner.choose(now, loading.planner)
    return Planning(plan.split, plan.why, bandwidth, plan)


def situation(loader: SplitLoader, bandwidth: Bandwidth) -> planner.Situation:
    """All that is known before an epoch."""
    assert loader.servers is not None
    loading, sampler = loader.loading, loader.sampler
    untimed = planner.situation_of(
        profile_sizes(loader.model, loader.input_shape),
        stored_bytes=loader.data.stored_bytes_per_sample,
        batch=max(1, sampler.batch // sampler.ranks),
        bandwidth_bps=bandwidth.bps,
        freeze=loader.freeze,
        workers=sampler.ranks,
        load=planner.ServerLoad.from_status(loader.servers.status()),
        iterations=sampler.batches,
        feature_bytes=0.5 if loading.features == "float16" else 1.0,
    )
    if not _asks_for_times(loader, untimed):
        return untimed
    return replace(untimed, costs=measured_costs(loader, loader.servers, untimed.load, bandwidth))


def _asks_for_times(loader: SplitLoader, untimed: planner.Situation) -> bool:
    """Whether times could change the plan: to measure them takes both sides a few seconds."""
    named = loader.loading.planner
    if named == "thesis":
        return False
    if not planner.candidates(untimed):
        return named != "adaptive"
    return not loader.keeps_features


def measured_costs(
    loader: SplitLoader, servers: Servers, load: planner.ServerLoad, bandwidth: Bandwidth
) -> planner.Costs:
    """Seconds of a sample on both sides, a server's as if it had no other load.

    Our own decoding is taken for as much longer than a server's, or shorter, as our layers are.
    """
    client = client_profile(loader)
    server = server_profile(client, servers, loader.data) or client
    speed = measured_speed(loader)
    slower = sum(client.forward_s) / max(sum(server.forward_s), 1e-9)
    return planner.Costs.of(
        client, _scaled(server, speed, loader.freeze, load.slowdown),
        server_prepare_s=speed.prepare_s / load.slowdown,
        client_prepare_s=speed.decode_alone_s * slower,
        per_byte_s=bandwidth.busy_s / max(1, bandwidth.bytes),
    )  # fmt: skip


def _scaled(server: ModelProfile, speed: ServerSpeed, freeze: int, slowdown: float) -> ModelProfile:
    """A profile whose frozen layers take together what they took while others were under way."""
    frozen_s = sum(server.forward_s[: freeze + 1])
    if speed.forward_s is None or frozen_s <= 0:
        return server
    factor = speed.forward_s / slowdown / frozen_s
    layers = tuple(
        replace(layer, forward_s=factor * seconds) if at <= freeze else layer
        for at, (layer, seconds) in enumerate(zip(server.layers, server.forward_s, strict=True))
    )
    return replace(server, layers=layers)


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
