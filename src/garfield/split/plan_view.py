"""What each split of a model would cost here, as plain numbers: for `garfield split plan`.

Sizes come from one sample, times from a few passes on this machine for both sides (a server that
is given tells its own), bandwidth from the flag or, with a server, from the link.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from garfield.core.bounds import Within
from garfield.core.config import check_numbers
from garfield.core.errors import ConfigError
from garfield.split.client.bandwidth import bandwidth_text, measure, parse_bandwidth
from garfield.split.client.servers import Servers, ServerSettings
from garfield.split.stores.settings import StoreSettings

if TYPE_CHECKING:
    from garfield.split.models.cutting import CutModel
    from garfield.split.planner import Plan, Situation
    from garfield.split.profile import ModelProfile

_STORED = {"jpeg": None, "uint8": 1, "float32": 4}
"""Bytes of a number, by how images are stored; a JPEG has as many as it has."""


@dataclass(frozen=True)
class PlanSettings:
    """What to plan for."""

    model: str = "resnet18"
    """Which model."""
    freeze: int | None = None
    """The last layer that is not trained, from 0. (Table 5.2 of the thesis)"""
    batch: Annotated[int, Within(1)] = 200
    """Samples in a training batch."""
    bandwidth: str | None = None
    """What the link carries, as 1Gbps. (measured, if there is a server)"""
    data: str | None = None
    """Packed images, of which the stored size is taken."""
    stored_as: str = "uint8"
    """Without data: how images are stored: jpeg, uint8 or float32."""
    stored_bytes: Annotated[float | None, Within(1)] = None
    """Without data: bytes of a stored image. (of 224×224 as stored-as says; 16,000 for jpeg)"""
    server: tuple[str, ...] = ()
    """Servers, to measure the link and ask for their load."""
    planner: str = "adaptive"
    """Who plans: adaptive, predictive or thesis."""
    egress: Annotated[float, Within(0)] = 0.09
    """What a gigabyte costs that leaves the store, in your money."""
    samples: Annotated[int | None, Within(1)] = None
    """Samples in an epoch. (as many as the data have, else 1,000,000)"""
    times: bool = True
    """Time the layers on this machine; else sizes alone."""
    servers: ServerSettings = field(default_factory=ServerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.stored_as not in _STORED:
            raise ConfigError(f"stored_as must be jpeg, uint8 or float32, got {self.stored_as!r}.")
        if self.bandwidth is None and not self.server:
            raise ConfigError("Give --bandwidth, as 1Gbps, or a --server to measure it with.")


@dataclass(frozen=True)
class SplitRow:
    """One place to cut."""

    split: int
    layer: str
    """The last layer at the server; "input" for none."""
    output_bytes: float
    """What travels for one sample."""
    forward_s: float | None
    """Of that layer, for one sample, on this machine."""
    memory_bytes: int | None
    """What one sample adds to the peak while that layer runs."""
    candidate: bool
    """Whether less travels than is stored."""
    frozen: bool
    """Whether one may cut there."""
    bytes_per_iteration: float
    iteration_s: float | None
    """Predicted."""
    bound_by: str | None
    """server, link or client: what takes longest."""
    epoch_cost: float
    """Of what leaves the store in an epoch."""


@dataclass(frozen=True)
class PlanView:
    """All of it."""

    model: str
    freeze: int
    batch: int
    bandwidth_bps: float
    stored_bytes: float
    stored_as: str
    samples: int
    rows: tuple[SplitRow, ...]
    split: int
    why: str
    planner: str
    advice: str
    """In a sentence: whether to use it here, and what it would bring."""
    server_timed: bool = False
    """Whether a server has told how long it takes; else it is taken to be as fast as we are."""


def view(settings: PlanSettings) -> PlanView:
    """Measure, plan, and lay out what every split would cost."""
    from garfield.split.client.data_set import DataSet
    from garfield.split.client.planning import server_profile
    from garfield.split.models import load
    from garfield.split.planner import Costs, ServerLoad, choose, situation_of
    from garfield.split.profile import profile_sizes, profile_times

    with ExitStack() as stack:
        stored, kind, samples = _stored(settings)
        data, servers = None, None
        if settings.data is not None:
            data = DataSet.open(settings.data, settings.store, settings.servers.server_s3_endpoint)
            stack.callback(data.close)
            stored, kind = data.stored_bytes_per_sample, data.kind
            samples = samples or sum(each.count for each in data.objects)
        model = load(settings.model)
        freeze = model.checked_freeze(settings.freeze)
        load_now, bps = ServerLoad(), None
        if settings.server:
            servers = Servers(settings.server, settings.servers)
            stack.callback(servers.close)
            load_now = ServerLoad.from_status(servers.status())
            bps = measure(servers.probe).bps
        profile = profile_times(model, freeze=freeze) if settings.times else profile_sizes(model)
        at_server = server_profile(profile, servers, data) if servers and data else None
        situation = situation_of(
            profile, stored_bytes=stored, batch=settings.batch, freeze=freeze, load=load_now,
            bandwidth_bps=parse_bandwidth(settings.bandwidth) if settings.bandwidth else bps or 1.0,
            costs=Costs.of(profile, at_server) if settings.times else None,
        )  # fmt: skip
        plan = choose(situation, settings.planner)
    samples = samples or 1_000_000
    return PlanView(
        model=model.name, freeze=freeze, batch=settings.batch,
        bandwidth_bps=situation.bandwidth_bps, stored_bytes=stored, stored_as=kind,
        samples=samples, rows=_rows(model, profile, situation, settings.egress, samples),
        split=plan.split, why=plan.why, planner=plan.planner, advice=_advice(situation, plan),
        server_timed=at_server is not None,
    )  # fmt: skip


def _stored(settings: PlanSettings) -> tuple[float, str, int | None]:
    """Bytes of a stored image as the settings say."""
    per_number = _STORED[settings.stored_as]
    default = 16_000.0 if per_number is None else 3.0 * 224 * 224 * per_number
    return settings.stored_bytes or default, settings.stored_as, settings.samples


def _rows(
    model: CutModel, profile: ModelProfile, situation: Situation, egress: float, samples: int
) -> tuple[SplitRow, ...]:
    from garfield.split.planner import candidates, predict

    smaller = set(candidates(situation))
    rows = []
    for split in range(len(model.layers) + 1):
        layer = profile.layers[split - 1] if split else None
        frozen = split <= situation.max_split
        timed = predict(situation, split) if situation.costs is not None and frozen else None
        rows.append(
            SplitRow(
                split=split,
                layer=layer.name if layer else "input",
                output_bytes=situation.sample_bytes(split),
                forward_s=layer.forward_s if layer else None,
                memory_bytes=layer.memory_bytes if layer else None,
                candidate=split in smaller,
                frozen=frozen,
                bytes_per_iteration=situation.iteration_bytes(split),
                iteration_s=timed.iteration_s if timed else None,
                bound_by=timed.bound_by if timed else None,
                epoch_cost=egress * samples * situation.sample_bytes(split) / 1e9,
            )
        )
    return tuple(rows)


def _advice(situation: Situation, plan: Plan) -> str:
    from garfield.split.planner import predict

    link = bandwidth_text(situation.bandwidth_bps)
    if plan.split == 0:
        return (
            f"Do not use this here: {plan.why}. Plain streaming over {link} sends "
            f"{situation.iteration_bytes(0) / 1e6:,.1f} MB an iteration."
        )
    fewer = situation.iteration_bytes(0) / situation.iteration_bytes(plan.split)
    bytes_ = f"{fewer:.1f} times fewer bytes" if fewer >= 1 else f"{1 / fewer:.1f} times MORE bytes"
    if situation.costs is None:
        return f"A split of {plan.split} sends {bytes_} than plain streaming."
    plain, split = (predict(situation, at).iteration_s for at in (0, plan.split))
    if split > 1.02 * plain:
        return (
            f"Do not use this here: a split of {plan.split} sends {bytes_}, but over {link} an "
            f"iteration would take {split:.3g} s, and {plain:.3g} s with plain streaming."
        )
    return (
        f"A split of {plan.split} sends {bytes_} than plain streaming; over {link} an iteration "
        f"would take {split:.3g} s instead of {plain:.3g} s."
    )
