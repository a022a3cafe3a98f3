"""Where to cut: Algorithm 2 of the thesis, ours, and one that predicts time.

A planner is one function of a `Situation`, which holds all that may be known, and returns the
number of layers that run at the server (`split`; the thesis's split index is one less). Add one
with `@planner("mine")`. All are pure, so `garfield split plan` shows what training would do.

    thesis      Algorithm 2 as printed: candidates are layers whose output is smaller than the
                input as a float32 tensor; of these the first whose output per training batch is
                below C, the bytes that the link carries in a second; none: the freeze index.
                (Line 16 returns a size where an index is meant: mended.)
    adaptive    the default: candidates are smaller than the input as it is *stored*. No winner:
                the smallest of them. No candidate: 0, plain streaming; as printed, the algorithm
                would send six times more than a 16 KB JPEG. The workers of a client share the
                link, and a server whose queue takes longer than streaming is left alone. Where
                times of both sides are known, what would be slower than streaming is no
                candidate: few bytes are no gain where a server's cores are what lacks.
    predictive  the split with the shortest predicted iteration, from the time of every layer on
                both sides, the link, the server's load and the client's workers

While training runs, the server computes features, the link carries others, and the client trains
on yet others, so an iteration takes as long as the slowest of the three; the other two add up
only until the first batch has arrived:

    iteration = slowest + (server + link + client − slowest) / iterations
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from garfield.core.errors import ConfigError
from garfield.core.registry import Registry
from garfield.split.profile import ModelProfile

Planner = Callable[["Situation"], "Plan"]

PLANNERS: Registry[Planner] = Registry("a planner")

DEFAULT = "adaptive"

_AS_GOOD = 1.01  # a shorter prefix is preferred to one that saves a hundredth of the time
_NO_TIME = 0.01  # of a forward pass


@dataclass(frozen=True)
class ServerLoad:
    """How busy the servers are with others' requests."""

    requests: int = 0
    """Others' requests that wait or run."""
    workers: int = 1
    """Requests that can run at once, on all servers together."""
    service_s: float = 0.0
    """What one of them takes, as measured there; the mean over requests."""

    @property
    def wait_s(self) -> float:
        """How long a new request waits for those before it."""
        return self.requests / max(1, self.workers) * self.service_s

    @property
    def slowdown(self) -> float:
        """How much longer than alone a request takes while others run beside it."""
        return 1.0 + self.requests / max(1, self.workers)

    def differs(self, other: ServerLoad, by: float = 0.2) -> bool:
        """Whether servers are busier or freer than they were, by more than is worth a thought."""
        pairs = ((self.slowdown, other.slowdown), (self.wait_s, other.wait_s))
        return any(abs(now - before) > by * before for now, before in pairs)

    @classmethod
    def from_status(cls, *answers: Mapping[str, Any]) -> ServerLoad:
        """From what servers answer to `GET /v1/status`; what they do not say counts as nothing."""
        loads = [answer.get("load") or {} for answer in answers]
        counts = [int(load.get("waiting", 0)) + int(load.get("running", 0)) for load in loads]
        workers = sum(int(load.get("workers", 1)) for load in loads)
        # by requests: one server's idle ones would halve what a busy one's really take
        busy_s = sum(
            count * float(load.get("service_s", 0.0))
            for count, load in zip(counts, loads, strict=True)
        )
        return cls(sum(counts), max(1, workers), busy_s / max(1, sum(counts)))


@dataclass(frozen=True)
class Costs:
    """What one sample costs on either side, in seconds."""

    server_forward_s: tuple[float, ...]
    """Of each layer, at a server."""
    client_forward_s: tuple[float, ...]
    """Of each layer, at the client."""
    train_s: float
    """Forward and backward of the layers that train, at the client."""
    server_prepare_s: float = 0.0
    """Reading, decoding and transforming at a server."""
    client_prepare_s: float = 0.0
    """Decoding and transforming at the client, where images travel."""
    per_byte_s: float = 0.0
    """Packing and sending, or receiving and unpacking, a byte: on each side."""
    per_iteration_s: float = 0.0
    """What an iteration costs the client whatever the split."""

    @classmethod
    def of(cls, client: ModelProfile, server: ModelProfile | None = None, **more: float) -> Costs:
        """From profiles of both sides; the server is as fast as the client if it has none."""
        if client.train_s is None:
            raise ConfigError(f"How long {client.model} trains has not been measured.")
        of_server = (server or client).forward_s
        fixed = {"per_iteration_s": client.step_s} | more
        return cls(of_server, client.forward_s, client.train_s, **fixed)


@dataclass(frozen=True)
class Situation:
    """All that a planner may know. Bytes are of one sample."""

    layer_bytes: tuple[int, ...]
    """What leaves each layer, in order."""
    input_bytes: int
    """The input as a float32 tensor."""
    stored_bytes: float
    """The input as it is stored, on average: what travels if nothing runs at the server."""
    batch: int
    """The training batch of one worker."""
    bandwidth_bps: float
    """What the link between store and client carries, in bits a second, measured."""
    freeze: int
    """Index of the last frozen layer, from 0."""
    workers: int = 1
    """Workers of the client that train at once and share the link."""
    load: ServerLoad = field(default_factory=ServerLoad)
    costs: Costs | None = None
    """Seconds; needed by planners that predict time."""
    iterations: int | None = None
    """How many iterations will follow; None for so many that the first does not matter."""
    feature_bytes: float = 1.0
    """What a byte of features becomes on the wire: 0.5 for float16."""

    def __post_init__(self) -> None:
        if not -1 <= self.freeze < len(self.layer_bytes):
            raise ConfigError(
                f"freeze must be within -1..{len(self.layer_bytes) - 1}, got {self.freeze}."
            )
        numbers = {
            "batch": self.batch,
            "bandwidth_bps": self.bandwidth_bps,
            "stored_bytes": self.stored_bytes,
            "input_bytes": self.input_bytes,
            "workers": self.workers,
            "feature_bytes": self.feature_bytes,
        }
        for name, value in numbers.items():
            if not 0 < value < math.inf:
                raise ConfigError(f"{name} must be above 0 and finite, got {value}.")
        if self.costs is not None:
            lengths = {len(self.costs.server_forward_s), len(self.costs.client_forward_s)}
            if lengths != {len(self.layer_bytes)}:
                raise ConfigError(
                    f"There are times of {sorted(lengths)} layers, and the model has "
                    f"{len(self.layer_bytes)}."
                )

    @property
    def max_split(self) -> int:
        """The last place to cut."""
        return self.freeze + 1

    @property
    def samples(self) -> int:
        """How many samples all workers take in an iteration."""
        return self.batch * self.workers

    @property
    def second_bytes(self) -> float:
        """C of Algorithm 2: what the link carries in a second."""
        return self.bandwidth_bps / 8

    def sample_bytes(self, split: int) -> float:
        """What travels for one sample."""
        if split == 0:
            return self.stored_bytes
        return self.layer_bytes[split - 1] * self.feature_bytes

    def iteration_bytes(self, split: int) -> float:
        """What travels in an iteration, to all workers."""
        return self.samples * self.sample_bytes(split)


@dataclass(frozen=True)
class Prediction:
    """What an iteration would take with one split, in seconds."""

    server_s: float
    link_s: float
    client_s: float
    iteration_s: float

    @property
    def bound_by(self) -> str:
        """Which of the three is the slowest."""
        times = {"server": self.server_s, "link": self.link_s, "client": self.client_s}
        return max(times, key=lambda name: times[name])


@dataclass(frozen=True)
class Plan:
    """A decision, and what it rests on."""

    split: int
    why: str
    planner: str
    candidates: tuple[int, ...]
    """Splits that would send less than the stored input."""
    bytes_per_iteration: float
    predicted: Prediction | None = None

    @property
    def pushes_down(self) -> bool:
        """Whether anything runs at the server."""
        return self.split > 0


def planner(name: str) -> Callable[[Callable[[Situation], tuple[int, str]]], Planner]:
    """Register a function from a situation to (split, why) as a planner of that name."""

    def register(decide: Callable[[Situation], tuple[int, str]]) -> Planner:
        def plan(situation: Situation) -> Plan:
            split, why = decide(situation)
            predicted = predict(situation, split) if situation.costs is not None else None
            sent = situation.iteration_bytes(split)
            return Plan(split, why, name, candidates(situation), sent, predicted)

        return PLANNERS.add(name, plan)

    return register


def choose(situation: Situation, planner: str = DEFAULT) -> Plan:
    """The plan of the planner of that name."""
    return PLANNERS[planner](situation)


def situation_of(
    profile: ModelProfile,
    *,
    stored_bytes: float,
    batch: int,
    bandwidth_bps: float,
    freeze: int,
    **more: Any,
) -> Situation:
    """A situation with the sizes of a profile."""
    return Situation(
        layer_bytes=tuple(each.output_bytes for each in profile.layers),
        input_bytes=4 * math.prod(profile.input_shape),
        stored_bytes=stored_bytes,
        batch=batch,
        bandwidth_bps=bandwidth_bps,
        freeze=freeze,
        **more,
    )


def candidates(situation: Situation) -> tuple[int, ...]:
    """Splits behind which less travels than the input takes as it is stored."""
    return tuple(
        split
        for split in range(1, situation.max_split + 1)
        if situation.sample_bytes(split) < situation.stored_bytes
    )


def predict(situation: Situation, split: int) -> Prediction:
    """Seconds of an iteration, of each side and in all; ConfigError without costs."""
    costs = situation.costs
    if costs is None:
        raise ConfigError("Time is predicted from times of the layers, and none were measured.")
    sent = situation.sample_bytes(split)
    copying = sent * costs.per_byte_s
    frozen = sum(costs.client_forward_s[split : situation.max_split])
    client = costs.train_s + frozen + copying
    server = 0.0
    if split:
        server = costs.server_prepare_s + sum(costs.server_forward_s[:split]) + copying
    else:
        client += costs.client_prepare_s
    server_s = situation.samples * server * situation.load.slowdown
    link_s = situation.samples * sent / situation.second_bytes
    client_s = situation.batch * client + costs.per_iteration_s
    slowest = max(server_s, link_s, client_s)
    waited = 0.0
    if situation.iterations is not None:
        waited = (server_s + link_s + client_s - slowest) / max(1, situation.iterations)
    return Prediction(server_s, link_s, client_s, slowest + waited)


@planner("thesis")
def thesis(situation: Situation) -> tuple[int, str]:
    """Algorithm 2 as printed."""
    for split in range(1, situation.max_split + 1):
        size = situation.layer_bytes[split - 1]
        if size < situation.input_bytes and situation.samples * size < situation.second_bytes:
            return split, "the first layer smaller than the input that a second carries"
    return situation.max_split, "no such layer is carried in a second: the freeze index"


@planner("adaptive")
def adaptive(situation: Situation) -> tuple[int, str]:
    """Algorithm 2 against what is stored, and against streaming."""
    smaller = candidates(situation)
    if not smaller:
        return 0, "no layer is smaller than the stored input: images are streamed"
    streaming_s = situation.iteration_bytes(0) / situation.second_bytes
    if situation.load.wait_s > streaming_s:
        return 0, (
            f"the server's queue takes {situation.load.wait_s:.3g} s, and to stream the images "
            f"{streaming_s:.3g} s"
        )
    found = [split for split in smaller if not _slows_down(situation, split)]
    if not found:
        return 0, "every split that sends less would take longer than to stream the images"
    for split in found:
        if situation.iteration_bytes(split) < situation.second_bytes:
            return split, "the first layer smaller than the stored input that a second carries"
    # the first of equals: no more is pushed down than it takes
    smallest = min(found, key=lambda split: (situation.layer_bytes[split - 1], split))
    return smallest, "none is carried in a second: the smallest"


def _slows_down(situation: Situation, split: int) -> bool:
    """Whether an iteration would take longer than with plain streaming, as far as is known."""
    if situation.costs is None:
        return False
    return predict(situation, split).iteration_s > predict(situation, 0).iteration_s


@planner("predictive")
def predictive(situation: Situation) -> tuple[int, str]:
    """The shortest predicted iteration, over every place to cut."""
    times = [predict(situation, split).iteration_s for split in range(situation.max_split + 1)]
    best = min(times)
    split = next(at for at, seconds in enumerate(times) if seconds <= _AS_GOOD * best)
    bound = predict(situation, split).bound_by
    return split, f"the shortest iteration predicted, {times[split]:.3g} s, bound by the {bound}"


def crossing_bps(situation: Situation, split: int) -> float:
    """The bandwidth below which a split is bound by the link, above which by computing."""
    at = predict(situation, split)
    computing_s = max(at.server_s, at.client_s)
    return 8 * situation.iteration_bytes(split) / computing_s if computing_s else math.inf


def distinct_cuts(situation: Situation) -> list[int]:
    """Splits worth timing: 0, and those that differ from the one before by what a run can show.

    A cut behind a layer that keeps its input's size and takes no time to speak of (a rectifier,
    a flattening) is the cut before it. ConfigError without costs.
    """
    costs = situation.costs
    if costs is None:
        raise ConfigError("Which cuts differ is told by times of the layers; none were measured.")
    total = sum(costs.client_forward_s)
    found = [0]
    for split in range(1, situation.max_split + 1):
        same = split > 1 and situation.sample_bytes(split) == situation.sample_bytes(split - 1)
        if not same or costs.client_forward_s[split - 1] > _NO_TIME * total:
            found.append(split)
    return found
