"""The real images that generated ones are compared with: which, and what is kept of them.

By default the test images, as in section 6.4 of the thesis: no device trains on them, so a server
may have them. Where there are fewer than 5,000 of them and more training images, it is those.
At most 10,000 are taken, drawn by a fixed seed.

What the extractor makes of them is computed once and kept in the user's cache directory
(`judging` in the data directory), under a hash of the images, the extractor and this file's
format. A file that is damaged, or cannot be written, costs time and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from garfield.core.errors import InputError
from garfield.core.files import replacing
from garfield.data import Dataset
from garfield.data.contract import Split
from garfield.fedgan.judging.class_probe import ClassProbe, fitted_probe
from garfield.fedgan.judging.classes import ClassCounts
from garfield.fedgan.judging.extractors import Extractor
from garfield.fedgan.judging.frechet import FeatureStatistics, FeatureSums
from garfield.fedgan.judging.small_cnn import in_range

ENOUGH = 5_000
"""Images below which a distance says too little: it grows as they become fewer."""

MOST = 10_000
"""Images taken by default, real and generated."""

_FORMAT = "garfield real images 1"
_BATCH = 500


@dataclass(frozen=True)
class RealImages:
    """Real images as bytes (n, c, h, w), their classes (n,), and whence they come."""

    pixels: torch.Tensor
    labels: torch.Tensor
    classes: int
    split: Split

    @classmethod
    def of(cls, data: Dataset, split: Split | None = None, most: int = MOST) -> RealImages:
        """So many images of a split, drawn at random if there are more; without `split`, of the
        test images if there are enough of them, else of whichever split is larger."""
        if split is None:
            tests, trains = len(data.pixels("test")), len(data.pixels("train"))
            split = "test" if tests >= min(ENOUGH, trains) else "train"
        count = len(data.pixels(split))
        if count < 2:
            raise InputError(f"{count} real images cannot be compared with. Give at least 2.")
        picked = np.arange(count)
        if count > most:
            picked = np.sort(np.random.default_rng(0).choice(count, most, replace=False))
        pixels = data.pixels(split)[picked]
        if pixels.ndim == 3:
            pixels = pixels[..., np.newaxis]
        return cls(
            torch.tensor(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))),
            torch.tensor(data.labels(split)[picked]),
            len(data.classes),
            split,
        )

    @property
    def image(self) -> tuple[int, int, int]:
        """(channels, height, width)"""
        channels, height, width = self.pixels.shape[1:]
        return channels, height, width

    def batches(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Images in [-1, 1] and their classes, some at a time."""
        for pixels, labels in zip(
            torch.split(self.pixels, _BATCH), torch.split(self.labels, _BATCH), strict=True
        ):
            yield in_range(pixels), labels

    def key(self, extractor: Extractor) -> str:
        """Under which what the extractor makes of them is kept."""
        digest = hashlib.sha256()
        shape = f"{tuple(self.pixels.shape)} {self.classes}"
        digest.update(f"{_FORMAT}\n{extractor.key}\n{shape}\n".encode())
        digest.update(self.pixels.numpy().tobytes())
        digest.update(self.labels.numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class RealFeatures:
    """What is kept of real images."""

    statistics: FeatureStatistics
    counts: ClassCounts | None
    """Which classes a classifier sees in them; None if there is none."""
    probe: ClassProbe | None
    """A classifier fitted to them, where the extractor has none of its own."""


@torch.no_grad()
def real_features(real: RealImages, extractor: Extractor, cache: Path) -> RealFeatures:
    """What the extractor makes of real images: from the cache directory, or computed and kept."""
    path = cache / f"{real.key(extractor)}.safetensors"
    kept = _read(path)
    if kept is not None:
        return kept
    made = _computed(real, extractor)
    with suppress(OSError):  # a full or read-only disk: computed again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, made)
    return made


def _computed(real: RealImages, extractor: Extractor) -> RealFeatures:
    sums, counts = FeatureSums(), ClassCounts(real.classes)
    unnamed: list[torch.Tensor] = []  # 51 MB for 10,000 images of EfficientNet
    for images, _ in real.batches():
        features = extractor.features(images)
        sums.add(features)
        named = extractor.class_probabilities(features)
        if named is None:
            unnamed.append(features)
        else:
            counts.add(named)
    if not unnamed:
        return RealFeatures(sums.statistics(), counts, None)
    every = torch.cat(unnamed)
    probe = fitted_probe(every, real.labels, real.classes)
    if probe is None:
        return RealFeatures(sums.statistics(), None, None)
    counts.add(probe.probabilities(every))
    return RealFeatures(sums.statistics(), counts, probe)


def _write(path: Path, made: RealFeatures) -> None:
    from safetensors.torch import save

    tensors = {
        "n": torch.tensor(made.statistics.n),
        "mean": made.statistics.mean,
        "covariance": made.statistics.covariance,
    }
    if made.counts is not None:
        tensors |= {"all": made.counts.all, "sure": made.counts.sure}
    if made.probe is not None:
        tensors |= {"probe.weight": made.probe.weight, "probe.bias": made.probe.bias}
    with replacing(path) as partial:
        partial.write_bytes(save({key: value.contiguous() for key, value in tensors.items()}))


def _read(path: Path) -> RealFeatures | None:
    """What was kept; None if nothing was, or not all of it is there or finite."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        found = load(path.read_bytes())
    except (OSError, SafetensorError):
        return None
    try:
        n, mean, covariance = int(found["n"]), found["mean"], found["covariance"]
        counts = ClassCounts.of(n, found["all"], found["sure"]) if "all" in found else None
        probe = (
            ClassProbe(found["probe.weight"], found["probe.bias"])
            if "probe.weight" in found
            else None
        )
    except (KeyError, ValueError):
        return None
    sound = covariance.shape == (len(mean), len(mean))
    if not sound or not all(bool(each.isfinite().all()) for each in found.values()):
        return None
    return RealFeatures(FeatureStatistics(n, mean, covariance), counts, probe)
