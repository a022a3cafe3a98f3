"""What each split of a model would cost here, as plain numbers: for `garfield split plan`.

With data and a server all is measured as a training measures it before its first epoch
(`client.planning`), and chosen by the same planner. (A training that keeps features asks no planner
where a split sends less than is stored: it takes the smallest.) Without both, sizes come from one
sample and times from a few passes on this machine, which then stand for a server's too;
`PlanView.not_known` says what a training would know besides.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

from garfield.core.bounds import Within
from garfield.core.config import check_numbers
from garfield.core.errors import ConfigError
from garfield.split.client.bandwidth import Bandwidth, bandwidth_text, measure, parse_bandwidth
from garfield.split.client.servers import Servers, ServerSettings
from garfield.split.settings import Loading
from garfield.split.stores.settings import StoreSettings

if TYPE_CHECKING:
    from garfield.split.client.data_set import DataSet
    from garfield.split.client.planning import MeasuredTimes
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
    """Samples in a training batch, of all ranks together."""
    ranks: Annotated[int, Within(1)] = 1
    """Clients of one training, which share its batches and the link."""
    transforms: str | None = None
    """What is done to each image. (what the model's weights expect)"""
    features: str = "float32"
    """How features travel: float32 or float16."""
    bandwidth: str | None = None
    """What the link carries, as 1Gbps. (measured, if there is a server)"""
    data: str | None = None
    """Packed images, of which the stored size is taken."""
    stored_as: str = "uint8"
    """Without data: how images are stored: jpeg, uint8 or float32."""
    stored_bytes: Annotated[float | None, Within(1)] = None
    """Without data: bytes of a stored image. (of 224×224 as stored-as says; 16,000 for jpeg)"""
    server: tuple[str, ...] = ()
    """Servers, to measure the link and ask for their load; with data, for their times too."""
    planner: str = "adaptive"
    """Who plans: adaptive, predictive or thesis."""
    egress: Annotated[float, Within(0)] = 0.09
    """What a gigabyte costs that leaves the store, in your money."""
    samples: Annotated[int | None, Within(1)] = None
    """Samples in an epoch. (as many as the data have, else 1,000,000)"""
    times: bool = True
    """Time the layers; else sizes alone."""
    servers: ServerSettings = field(default_factory=ServerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.stored_as not in _STORED:
            raise ConfigError(f"stored_as must be jpeg, uint8 or float32, got {self.stored_as!r}.")
        if self.batch < self.ranks:
            raise ConfigError(
                f"batch must be at least the number of ranks, {self.ranks}, got {self.batch}."
            )
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
    not_known: str = ""
    """In a sentence: what a training would know that was not known here; empty for nothing."""


@dataclass(frozen=True)
class _Known:
    """What the plan rests on."""

    situation: Situation
    profile: ModelProfile
    server_timed: bool = False


def view(settings: PlanSettings) -> PlanView:
    """Measure, plan, and lay out what every split would cost."""
    from garfield.split.models import load
    from garfield.split.planner import choose

    with ExitStack() as stack:
        data = _data(settings, stack)
        servers = None
        if settings.server:
            servers = Servers(settings.server, settings.servers)
            stack.callback(servers.close)
        model = load(settings.model, classes=len(data.classes) or None if data else None)
        link = _link(settings, servers)
        if data is not None and servers is not None:
            known = _as_training(settings, model, data, servers, link)
        else:
            known = _guessed(settings, model, data, servers, link)
    situation = known.situation
    plan = choose(situation, settings.planner)
    samples = settings.samples or (_count(data) if data else 1_000_000)
    return PlanView(
        model=model.name, freeze=situation.freeze, batch=settings.batch,
        bandwidth_bps=situation.bandwidth_bps, stored_bytes=situation.stored_bytes,
        stored_as=data.kind if data else settings.stored_as, samples=samples,
        rows=_rows(model, known.profile, situation, settings.egress, samples),
        split=plan.split, why=plan.why, planner=plan.planner, advice=_advice(situation, plan),
        server_timed=known.server_timed, not_known=_not_known(settings, known.server_timed),
    )  # fmt: skip


def _data(settings: PlanSettings, stack: ExitStack) -> DataSet | None:
    from garfield.split.client.data_set import DataSet

    if settings.data is None:
        return None
    data = DataSet.open(settings.data, settings.store, settings.servers.server_s3_endpoint)
    stack.callback(data.close)
    return data


def _count(data: DataSet) -> int:
    return sum(stored.count for stored in data.objects)


def _link(settings: PlanSettings, servers: Servers | None) -> Bandwidth:
    """What the link carries: as the settings say, or as measured."""
    # also where the settings say: what receiving a byte takes here is told by nothing else
    link = measure(servers.probe) if servers else Bandwidth(1.0, 0, 0.0)
    if settings.bandwidth is None:
        return link
    return replace(link, bps=parse_bandwidth(settings.bandwidth))


def _as_training(
    settings: PlanSettings, model: CutModel, data: DataSet, servers: Servers, link: Bandwidth
) -> _Known:
    """What a training of these data by these servers knows before an epoch."""
    from garfield.split.client.loader import SplitLoader
    from garfield.split.client.planning import measured_times, servers_load, untimed_situation
    from garfield.split.profile import profile_sizes

    loading = Loading(
        planner=settings.planner, transforms=settings.transforms, features=settings.features,
        ranks=settings.ranks,
    )  # fmt: skip
    loader = SplitLoader(
        data, model, servers, freeze=settings.freeze, batch=settings.batch, loading=loading
    )
    untimed = untimed_situation(loader, link, servers_load(servers))
    if settings.samples is not None:
        untimed = replace(untimed, iterations=-(-settings.samples // settings.batch))
    if not settings.times:
        return _Known(untimed, profile_sizes(model, loader.input_shape))
    return _timed(untimed, measured_times(loader), link)


def _guessed(
    settings: PlanSettings,
    model: CutModel,
    data: DataSet | None,
    servers: Servers | None,
    link: Bandwidth,
) -> _Known:
    """The same as far as it is known without data, or without a server."""
    from garfield.split.client.loader import default_transforms, sample_shape
    from garfield.split.client.planning import MeasuredTimes, client_profile, servers_load
    from garfield.split.planner import ServerLoad, situation_of
    from garfield.split.profile import profile_sizes
    from garfield.split.transforms import Transforms

    freeze = model.checked_freeze(settings.freeze)
    shape = sample_shape(Transforms.parse(settings.transforms or default_transforms(model.name)))
    samples = settings.samples or (_count(data) if data else None)
    sizes = profile_sizes(model, shape)
    untimed = situation_of(
        sizes,
        stored_bytes=data.stored_bytes_per_sample if data else _stored_bytes(settings),
        batch=settings.batch // settings.ranks,
        bandwidth_bps=link.bps,
        freeze=freeze,
        workers=settings.ranks,
        load=servers_load(servers) if servers else ServerLoad(),
        iterations=-(-samples // settings.batch) if samples else None,
        feature_bytes=0.5 if settings.features == "float16" else 1.0,
    )
    if not settings.times:
        return _Known(untimed, sizes)
    return _timed(untimed, MeasuredTimes(client_profile(model, shape, freeze)), link)


def _timed(untimed: Situation, times: MeasuredTimes, link: Bandwidth) -> _Known:
    return _Known(times.added_to(untimed, link), times.client, times.server is not None)


def _not_known(settings: PlanSettings, server_timed: bool) -> str:
    """What a training would know besides, and the remedy."""
    if not settings.times:
        return "No layer was timed. A training times both sides, and may choose another split."
    if server_timed:
        return ""
    flags = {"--data": settings.data, "--server": settings.server}
    missing = " and ".join(flag for flag, given in flags.items() if not given)
    untimed = f"Without {missing} no server is timed" if missing else "No server told its times"
    return (
        f"{untimed}: it is taken to be as fast as this machine, and reading and decoding images to "
        "take no time on either side. A training measures both, and may choose another split."
    )


def _stored_bytes(settings: PlanSettings) -> float:
    """Bytes of a stored image as the settings say."""
    per_number = _STORED[settings.stored_as]
    default = 16_000.0 if per_number is None else 3.0 * 224 * 224 * per_number
    return settings.stored_bytes or default


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
