"""Where to cut in the next epoch: the settings say, or a planner does, from measurements.

Before every epoch the link is measured, and all servers are asked for their load. If both are what
they were, the split stays; otherwise it is planned anew, from sizes of the layers (one sample
passed through, once), the stored size of the images, the servers' load, and, but for the thesis's
planner, seconds of every layer on both sides: the client times its own, a server is asked for its
own, and then by as many requests as a training has under way how long a sample really takes
(`server_speed`). Where the load alone has changed, these seconds still hold.

Of several ranks the first does all this while the others wait, and tells them (`ranks`): what it
measures is the whole link, which all ranks are taken to share, as those of one machine do. Ranks on
machines with links of their own have more than it says.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from garfield.core.errors import SplitError
from garfield.data.stored import data_directory
from garfield.split import planner, wire
from garfield.split.client import ranks
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
    from garfield.split.models.cutting import CutModel

_log = logging.getLogger("garfield.split")

_TIMED_BATCH = 32
"""So small that a client which cannot hold its training batch may measure, too."""


@dataclass(frozen=True)
class Planning:
    """How an epoch's split came about."""

    split: int
    why: str
    bandwidth: Bandwidth | None = None
    """What the link carried when it was planned; None where it was not planned here."""
    plan: planner.Plan | None = None
    situation: planner.Situation | None = None
    """What was known then; None as above."""


def planned(loader: SplitLoader, before: Planning | None) -> Planning:
    """The split of the next epoch; with a process group, all ranks must ask for it."""
    loading, servers = loader.loading, loader.servers
    if loading.split is not None:
        return Planning(loading.split, "as the settings say")
    if loading.baseline or servers is None:
        return Planning(0, "baseline: images are streamed")
    if not ranks.share_a_group(loading.ranks):
        return _planned_here(loader, servers, before)
    if not ranks.is_first():
        return Planning(ranks.heard(), "as rank 0 has planned")
    try:
        planning = _planned_here(loader, servers, before)
    except BaseException:  # also Ctrl-C: the others wait for a word
        with suppress(RuntimeError):  # unless they have gone
            ranks.tell(None)
        raise
    ranks.tell(planning.split)
    return planning


def _planned_here(loader: SplitLoader, servers: Servers, before: Planning | None) -> Planning:
    """Measure, and choose anew if anything has changed."""
    link, load = measure(servers.probe), servers_load(servers)
    known = before.situation if before is not None else None
    if before is None or known is None or link.differs(before.bandwidth):
        planning = _chosen(loader, link, situation(loader, link, load))
    elif load.differs(known.load):
        # costs are of servers without load: nothing need be timed again
        planning = _chosen(loader, before.bandwidth, replace(known, load=load))
    else:
        return replace(before, why="the link carries what it did, and servers are as busy")
    if planning.split == 0 and (before is None or before.split):
        _tell_what_is_not_kept(loader, planning)
    return planning


def _tell_what_is_not_kept(loader: SplitLoader, planning: Planning) -> None:
    """Images that are streamed leave no features beside the data, whoever asked for them."""
    if loader.loading.materialise:
        _log.warning(
            "Nothing is materialised: the plan is a split of 0 (%s), which streams images in every "
            "epoch. To have features put beside the data say where to cut: --split N, at most %d.",
            planning.why, loader.freeze + 1,
        )  # fmt: skip


def _chosen(loader: SplitLoader, link: Bandwidth | None, now: planner.Situation) -> Planning:
    """The split for what is known."""
    candidates = planner.candidates(now)
    if loader.keeps_features and candidates:
        # each feature travels once, so what counts is its size, and work that need not come again
        smallest = min(candidates, key=lambda split: (now.sample_bytes(split), -split))
        why = "features are kept: the smallest, once"
        return Planning(smallest, why, link, situation=now)
    plan = planner.choose(now, loader.loading.planner)
    return Planning(plan.split, plan.why, link, plan, now)


def servers_load(servers: Servers) -> planner.ServerLoad:
    """How busy all servers are that answer: requests will be spread over them."""
    return planner.ServerLoad.from_status(*servers.statuses())


def situation(loader: SplitLoader, link: Bandwidth, load: planner.ServerLoad) -> planner.Situation:
    """All that is known before an epoch; times too, where they could change the plan."""
    untimed = untimed_situation(loader, link, load)
    if not _asks_for_times(loader, untimed):
        return untimed
    return measured_times(loader).added_to(untimed, link)


def untimed_situation(
    loader: SplitLoader, link: Bandwidth, load: planner.ServerLoad
) -> planner.Situation:
    """What is known without timing anything."""
    sampler = loader.sampler
    return planner.situation_of(
        profile_sizes(loader.model, loader.input_shape),
        stored_bytes=loader.data.stored_bytes_per_sample,
        batch=max(1, sampler.batch // sampler.ranks),
        bandwidth_bps=link.bps,
        freeze=loader.freeze,
        workers=sampler.ranks,
        load=load,
        iterations=sampler.batches,
        feature_bytes=0.5 if loader.loading.features == "float16" else 1.0,
    )


def _asks_for_times(loader: SplitLoader, untimed: planner.Situation) -> bool:
    """Whether times could change the plan: to measure them takes both sides a few seconds."""
    named = loader.loading.planner
    if named == "thesis":
        return False
    if not planner.candidates(untimed):
        return named != "adaptive"
    return not loader.keeps_features


@dataclass(frozen=True)
class MeasuredTimes:
    """Seconds of a sample on both sides."""

    client: ModelProfile
    server: ModelProfile | None = None
    """None: no server has told, and it is taken to be as fast as we are."""
    speed: ServerSpeed = field(default_factory=ServerSpeed)

    def added_to(self, untimed: planner.Situation, link: Bandwidth) -> planner.Situation:
        """The situation with these times, a server's as if it had no other load.

        Our own decoding is taken for as much longer than a server's, or shorter, as our layers are.
        """
        client, server, slowdown = self.client, self.server or self.client, untimed.load.slowdown
        slower = sum(client.forward_s) / max(sum(server.forward_s), 1e-9)
        costs = planner.Costs.of(
            client, _scaled(server, self.speed, untimed.freeze, slowdown),
            server_prepare_s=self.speed.prepare_s / slowdown,
            client_prepare_s=self.speed.decode_alone_s * slower,
            per_byte_s=link.busy_s / max(1, link.bytes),
        )  # fmt: skip
        return replace(untimed, costs=costs)


def measured_times(loader: SplitLoader) -> MeasuredTimes:
    """Time what has not been timed yet; a few seconds of both sides."""
    assert loader.servers is not None
    client = client_profile(loader.model, loader.input_shape, loader.freeze)
    server = server_profile(client, loader.servers, loader.data)
    return MeasuredTimes(client, server, measured_speed(loader))


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


def client_profile(model: CutModel, shape: tuple[int, ...], freeze: int) -> ModelProfile:
    """Seconds of every layer here; measured once for a model and kept."""
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
