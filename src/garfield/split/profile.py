"""What a model costs, layer by layer: bytes that leave it, seconds, memory (thesis, 5.4.3).

Sizes come from one sample that the client passes through. Memory is the server's to measure, at
two batch sizes, since a client may lie: while layers run one after the other the peak is

    peak(b) = max over layers of  fixed + b · per sample

which is convex in the batch b, and from eight samples on a straight line for every model here:
below, one layer's reordered weights can be the largest thing there is. Growth above an idle
worker in MiB, one thread, forked, heap returned at once:

    b                      1     2     4     8     16     32     64    128    200
    alexnet, 18 layers   29.7  28.5  30.6  36.2   51.0   80.8  141.1  261.9  397.8
    resnet18, 12         44.4  46.3  49.7  74.9  128.5  235.7  449.9  878.8 1361.1

So a line through 8 and 32 with a small margin (`MemoryModel.fit`) is never below, and a few
per cent above; where images are small, so that noise would tell, 128 is measured too.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from garfield.core.errors import ConfigError
from garfield.core.files import write_json
from garfield.report.machine import processor

if TYPE_CHECKING:
    import torch
    from torch import nn

    from garfield.split.models.cutting import CutModel

PROFILE_BATCHES = (8, 32)
"""The two batch sizes at which memory is measured."""

_MIB = 1 << 20
_STEEPER = 1.015  # the slope still rises by 0.8 % from (8, 32) to 200 samples of AlexNet
_LEAST_MARGIN = _MIB  # what small allocations and the heap's own pages vary by
_MARGIN = 0.02  # of the first peak, for models with large weights


@dataclass(frozen=True)
class MemoryModel:
    """Bytes that a prefix needs beyond an idle worker: a line in the batch size."""

    base_bytes: int
    per_sample_bytes: int
    least_batch: int = 1
    """Smaller batches are predicted as this one: what they need is not on the line."""

    @classmethod
    def fit(cls, peaks: Sequence[tuple[int, int]]) -> MemoryModel:
        """A line just above measured (batch, bytes): of two sizes, or more."""
        points = sorted(peaks)
        if len({batch for batch, _ in points}) < 2 or points[0][0] < 1:
            raise ConfigError(
                f"Memory is predicted from peaks at two batch sizes or more, got {points}."
            )
        # of the widest batches: peaks vary by a few MiB whatever the batch, and a slope that was
        # taken between 8 and 32 small images alone was once a tenth too steep at 120
        highest = dict(points)  # sorted: of several at one batch, the largest
        (batch, peak), (larger, later) = sorted(highest.items())[-2:]
        least, first = points[0]
        # noise of the smaller of them may have swallowed all of that: over all batches it is little
        slope = max((later - peak) / (larger - batch), (later - first) / (larger - least), 1.0)
        base = max(peak - slope * batch for batch, peak in points)
        margin = max(_LEAST_MARGIN, _MARGIN * max(first, 0))
        return cls(
            base_bytes=max(0, math.ceil(base + margin)),
            per_sample_bytes=math.ceil(slope * _STEEPER),
            least_batch=least,
        )

    def predict(self, batch: int) -> int:
        """Bytes at that batch size."""
        return self.base_bytes + max(batch, self.least_batch) * self.per_sample_bytes


@dataclass(frozen=True)
class LayerProfile:
    """What is known of one layer, per sample."""

    name: str
    shape: tuple[int, ...]
    output_bytes: int
    """What leaves it for one sample."""
    forward_s: float | None = None
    """Seconds for one sample in a batch, on the side that measured; None: not measured."""
    memory_bytes: int | None = None
    """What one sample adds to the peak while this layer runs; None: not measured."""
    weights_bytes: int = 0


@dataclass(frozen=True)
class ModelProfile:
    """A model's layers, as one side has measured them."""

    model: str
    input_shape: tuple[int, ...]
    layers: tuple[LayerProfile, ...]
    batch: int | None = None
    """The batch that times were taken at; None: none were."""
    train_s: float | None = None
    """Seconds for one more sample, forward and backward, behind `freeze`."""
    step_s: float = 0.0
    """Seconds of a training step whatever the batch: every parameter is read and written."""
    freeze: int | None = None

    @property
    def forward_s(self) -> tuple[float, ...]:
        """Each layer's time; ConfigError if it was not measured."""
        times = [each.forward_s for each in self.layers if each.forward_s is not None]
        if len(times) < len(self.layers):
            raise ConfigError(f"The times of {self.model}'s layers have not been measured.")
        return tuple(times)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: Any) -> ModelProfile:
        """What `to_json` gave; ConfigError for anything else."""
        try:
            layers = tuple(
                LayerProfile(**{**each, "shape": tuple(each["shape"])}) for each in found["layers"]
            )
            return cls(**{**found, "layers": layers, "input_shape": tuple(found["input_shape"])})
        except (TypeError, KeyError) as problem:
            raise ConfigError(f"This is no profile of a model: {problem!r}.") from None


def profile_sizes(model: CutModel, input_shape: tuple[int, ...] | None = None) -> ModelProfile:
    """Sizes of what leaves each layer, and its memory, by passing one sample; no times."""
    shape = input_shape or model.input_shape
    sizes = model.sizes(shape)
    layers, entering = [], shape
    for index, size in enumerate(sizes):
        piece = model.piece(index, index + 1)
        weights = sum(each.numel() * each.element_size() for each in piece.state_dict().values())
        layers.append(
            LayerProfile(
                size.name,
                size.shape,
                size.bytes,
                memory_bytes=tensor_bytes_per_sample(piece, entering),
                weights_bytes=weights,
            )
        )
        entering = size.shape
    return ModelProfile(model.name, tuple(shape), tuple(layers))


def profile_times(
    model: CutModel,
    *,
    batch: int = 16,
    repeats: int = 3,
    freeze: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> ModelProfile:
    """Sizes and seconds per sample on this machine: the fastest of a few passes counts.

    Each layer's forward pass in eval mode, and one training step of those behind `freeze`.
    """
    import torch

    if batch < 1 or repeats < 1:
        raise ConfigError(f"batch and repeats must be at least 1, got {batch} and {repeats}.")
    sizes = profile_sizes(model, input_shape)
    freeze = model.checked_freeze(freeze)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, *sizes.input_shape, generator=generator)
    best = [math.inf] * len(sizes.layers)
    frozen = images
    for _ in range(repeats):
        began = clock()
        for index, (_, entering) in enumerate(model.passed(images)):
            now = clock()
            best[index] = min(best[index], now - began)
            if index == freeze:
                frozen = entering
            began = clock()
    layers = tuple(
        replace(each, forward_s=seconds / batch)
        for each, seconds in zip(sizes.layers, best, strict=True)
    )
    train_s, step_s = _training_s(model, freeze, frozen, repeats, clock)
    return replace(sizes, layers=layers, batch=batch, train_s=train_s, step_s=step_s, freeze=freeze)


def _training_s(
    model: CutModel, freeze: int, features: torch.Tensor, repeats: int, clock: Callable[[], float]
) -> tuple[float, float]:
    """Seconds of a sample, and of a step whatever the batch, by steps of two sizes.

    A copy of the trained layers is trained, so that the model stays as it is. AlexNet's have 57
    million parameters: of 32 samples, nearly all the time is theirs.
    """
    import copy

    import torch

    trained = copy.deepcopy(model.piece(freeze + 1, len(model.layers)))
    trained.requires_grad_(True).train()
    optimizer = torch.optim.SGD(trained.parameters(), 1e-3, 0.9)
    many = features.detach().clone()
    few = many[: max(1, len(many) // 4)]

    def seconds(batch: torch.Tensor) -> float:
        began = clock()
        optimizer.zero_grad()
        trained(batch).square().mean().backward()
        optimizer.step()
        return clock() - began

    seconds(few)  # what is allocated once
    short = min(seconds(few) for _ in range(repeats))
    long = min(seconds(many) for _ in range(repeats))
    if len(few) == len(many):
        return long / len(many), 0.0
    each = max(0.0, (long - short) / (len(many) - len(few)))
    return each, max(0.0, long - each * len(many))


def tensor_bytes_per_sample(piece: nn.Module, input_shape: Sequence[int]) -> int:
    """What one more sample adds to the tensors alive while a piece runs, its input included.

    Counted without computing; what libraries take inside an operator is not seen.
    """
    return _tensor_peak(piece, (2, *input_shape)) - _tensor_peak(piece, (1, *input_shape))


def _tensor_peak(piece: nn.Module, shape: Sequence[int]) -> int:
    import copy

    import torch

    from garfield.split.live_tensors import LiveTensors
    from garfield.split.models.cutting import Frozen

    piece = piece.inner if isinstance(piece, Frozen) else piece
    weightless = copy.deepcopy(piece, {id(each): each for each in piece.parameters()}).eval()
    weightless.to("meta")
    with torch.no_grad(), LiveTensors() as live:
        images = torch.empty(*shape, device="meta")
        weightless(images)
        peak: int = live.peak_bytes
    return peak


class ProfileCache:
    """Profiles kept on disk by what they depend on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, key: str) -> ModelProfile | None:
        """The profile of that key; None if there is none that can be read."""
        try:
            return ModelProfile.from_json(json.loads(self._path(key).read_text("utf-8")))
        except (OSError, ValueError, ConfigError):
            return None

    def put(self, key: str, profile: ModelProfile) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        write_json(self._path(key), profile.to_json())

    def get_or_make(self, key: str, make: Callable[[], ModelProfile]) -> ModelProfile:
        """The kept one, or a new one that is kept from now on."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found)
        return found

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}.json"


def profile_key(model: CutModel, *about: object) -> str:
    """A name for profiles of a model: its layers, their weights' shapes, what runs it, `about`.

    What runs it is torch with its threads and the processor: a home may be seen by several
    machines, and a virtual one may start on another tomorrow.
    """
    import torch

    lines = [model.name, *model.layers, str(model.input_shape), torch.__version__]
    lines += [str(torch.get_num_threads()), processor(), *map(str, about)]
    state = model.module.state_dict()
    lines += [f"{key} {tuple(value.shape)} {value.dtype}" for key, value in state.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
