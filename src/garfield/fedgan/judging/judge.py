"""A judge says how good generated images are, and how it knows.

`judge_for` gives one for a data set; `Judge.score` looks at images batch by batch, keeps sums of
their features, and returns a `Judgement`. Images are rounded to 256 levels first, as they are when
saved as a picture, so that a judgement is the same for images fresh from a generator and for
images read from files. All of it is a function of the images: no random number is drawn, save
those that start the classifier of `trained_on.py`, which come from a seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from garfield.core.errors import ConfigError, InputError
from garfield.data import Dataset, load
from garfield.data.contract import Split
from garfield.data.stored import data_directory
from garfield.fedgan.judging.classes import ClassCounts, class_divergence, modes_covered
from garfield.fedgan.judging.extractors import Extractor, extractor_for
from garfield.fedgan.judging.frechet import FeatureSums, frechet_distance
from garfield.fedgan.judging.real_images import ENOUGH, RealFeatures, RealImages, real_features
from garfield.fedgan.judging.small_cnn import in_range
from garfield.fedgan.judging.trained_on import LabelsBy, accuracy_trained_on

_BATCH = 500
_SLACK = 1e-3  # a tanh in float32 does not pass 1, but what users write may by a rounding


@dataclass(frozen=True)
class Judgement:
    """What was found of some generated images."""

    fid: float
    """The Fréchet distance to real images: the lower, the better."""
    label: str
    """What `fid` is called wherever it is shown: over which features, and if images were few."""
    n: int
    """How many generated images there were."""
    real_n: int
    """How many real ones."""
    real_split: Split
    """Whether those are test or training images."""
    modes: int | None
    """Classes covered, as `classes.py` defines it; None without a classifier."""
    classes: int
    """Classes that there are."""
    kl: float | None
    """KL(generated ‖ real) of the shares of classes, in nats; None without a classifier."""
    shares: tuple[float, ...]
    """The share of generated images in each class; empty without a classifier."""
    accuracy_trained_on: float | None = None
    """On real images, of a classifier trained on the generated ones; None if none was asked for."""
    labels_by: LabelsBy | None = None
    """Who said what classes those were."""


class Judge:
    """Compares images with those of one data set."""

    def __init__(self, extractor: Extractor, real: RealImages, cache: Path) -> None:
        self.extractor, self.real = extractor, real
        self._features: RealFeatures = real_features(real, extractor, cache)

    @property
    def image(self) -> tuple[int, int, int]:
        """(channels, height, width) of the images it judges."""
        return self.real.image

    def label(self, n: int) -> str:
        """What a distance of so many generated images is called."""
        few = [
            f"only {count:,} {kind} images"
            for count, kind in ((n, "generated"), (self._features.statistics.n, "real"))
            if count < ENOUGH
        ]
        return f"FID ({'; '.join([self.extractor.label, *few])})"

    @torch.no_grad()
    def score(
        self,
        images: torch.Tensor | Iterable[torch.Tensor],
        *,
        labels: torch.Tensor | None = None,
        train_classifier: bool = False,
        few_are_enough: bool = False,
        seed: int = 0,
    ) -> Judgement:
        """Judge images (n, c, h, w) in [-1, 1], all at once or batch by batch.

        Below 5,000 they are refused, unless `few_are_enough`: the label says then how few they
        were. `labels` (n,) are the classes that a conditional generator was asked for; with
        `train_classifier` a classifier is trained on the images, which takes much longer.
        """
        sums, counts, kept = FeatureSums(), ClassCounts(self.real.classes), _Kept()
        for batch in _batches(images):
            pixels = _checked_pixels(batch, self.image, first=sums.n)
            features = self.extractor.features(in_range(pixels))
            sums.add(features)
            seen = self._classes_of(features)
            named = None if seen is None else counts.add(seen)
            if train_classifier:
                kept.add(pixels, named)
        self._require_enough(sums.n, few_are_enough)
        judged = counts if counts.n else None
        right, labels_by = None, None
        if train_classifier:
            right, labels_by = self._trained(kept, labels, seed)
        elif labels is not None:
            _checked_labels(labels, sums.n, self.real.classes)
        return self._judgement(sums, judged, right, labels_by)

    def _judgement(
        self,
        sums: FeatureSums,
        counts: ClassCounts | None,
        right: float | None,
        labels_by: LabelsBy | None,
    ) -> Judgement:
        real = self._features
        modes = kl = None
        shares: tuple[float, ...] = ()
        if counts is not None and real.counts is not None:
            modes = modes_covered(counts, real.counts)
            kl = class_divergence(counts.all, real.counts.all)
            shares = tuple((counts.all / counts.n).tolist())
        return Judgement(
            fid=frechet_distance(sums.statistics(), real.statistics),
            label=self.label(sums.n),
            n=sums.n,
            real_n=real.statistics.n,
            real_split=self.real.split,
            modes=modes,
            classes=self.real.classes,
            kl=kl,
            shares=shares,
            accuracy_trained_on=right,
            labels_by=labels_by,
        )

    def _classes_of(self, features: torch.Tensor) -> torch.Tensor | None:
        if self._features.probe is not None:
            return self._features.probe.probabilities(features)
        return self.extractor.class_probabilities(features)

    def _trained(
        self, kept: _Kept, labels: torch.Tensor | None, seed: int
    ) -> tuple[float, LabelsBy]:
        pixels = torch.cat(kept.pixels)
        if labels is not None:
            named = _checked_labels(labels, len(pixels), self.real.classes)
            labels_by = LabelsBy.GENERATOR
        elif kept.named:
            named, labels_by = torch.cat(kept.named), LabelsBy.CLASSIFIER
        else:
            raise ConfigError(
                "A classifier can be trained on generated images only if their classes are known: "
                "the generator is not conditional, and the data have fewer than two classes."
            )
        with torch.enable_grad():
            right = accuracy_trained_on(
                (pixels, named),
                (self.real.pixels, self.real.labels),
                classes=self.real.classes,
                seed=seed,
            )
        return right, labels_by

    @staticmethod
    def _require_enough(n: int, few_are_enough: bool) -> None:
        if n < 2:
            raise InputError(f"At least 2 images are needed to judge a generator, got {n}.")
        if n < ENOUGH and not few_are_enough:
            raise InputError(
                f"At least {ENOUGH:,} images are needed to judge a generator, got {n:,}: a "
                "distance grows as they become fewer. Draw more, or say that few are enough, "
                "and its label will say how few they were."
            )


class _Kept:
    """What training a classifier needs of the images."""

    def __init__(self) -> None:
        self.pixels: list[torch.Tensor] = []
        self.named: list[torch.Tensor] = []

    def add(self, pixels: torch.Tensor, named: torch.Tensor | None) -> None:
        self.pixels.append(pixels)
        if named is not None:
            self.named.append(named)


def judge_for(
    data: str | Dataset,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    features: str = "auto",
    inception_weights: Path | None = None,
    split: Split | None = None,
    cache: Path | None = None,
) -> Judge:
    """The judge of a data set, by name or as one of the user's own.

    `features` is small-cnn, efficientnet or inception, by default the first that fits;
    `inception_weights` the path of weights that the user owns. `split` says which real images,
    by default as `real_images.py` tells. What is computed of them is kept in `cache`, by default
    `judging` in the data directory.
    """
    name = data if isinstance(data, str) else ""
    extractor = extractor_for(name, features, inception_weights)
    dataset = load(data, data_dir) if isinstance(data, str) else data
    return Judge(
        extractor, RealImages.of(dataset, split), cache or data_directory(data_dir) / "judging"
    )


def _batches(images: torch.Tensor | Iterable[torch.Tensor]) -> Iterable[torch.Tensor]:
    if not isinstance(images, torch.Tensor):
        return images
    return torch.split(images, _BATCH) if images.ndim else [images]


def _checked_pixels(
    batch: torch.Tensor, image: tuple[int, int, int], *, first: int
) -> torch.Tensor:
    """A batch of images as bytes; InputError for what is no batch of such images.

    `first` is how many came before it.
    """
    if not isinstance(batch, torch.Tensor) or not batch.is_floating_point():
        kind = getattr(batch, "dtype", type(batch).__name__)
        raise InputError(f"Images to judge must be tensors of floats in [-1, 1], got {kind}.")
    if batch.ndim != 4 or tuple(batch.shape[1:]) != image:
        raise InputError(
            f"Images to judge must be (n, {', '.join(map(str, image))}) as the real ones are, "
            f"got {tuple(batch.shape)}."
        )
    batch = batch.detach().cpu()
    broken = (~batch.isfinite()).flatten(1).any(1)
    if broken.any():
        which = first + int(broken.nonzero()[0])
        raise InputError(
            f"{int(broken.sum())} of {len(batch)} images hold values that are not finite, the "
            f"first of them image {which}: the generator has diverged."
        )
    if len(batch) and (batch.abs().max() > 1 + _SLACK):
        raise InputError(
            f"Images to judge must lie in [-1, 1], got values from {float(batch.min()):.3g} to "
            f"{float(batch.max()):.3g}. End the generator in a tanh, or scale its images."
        )
    return batch.float().add(1).mul(127.5).round().clamp(0, 255).to(torch.uint8)


def _checked_labels(labels: torch.Tensor, n: int, classes: int) -> torch.Tensor:
    labels = torch.as_tensor(labels).cpu()
    if labels.shape != (n,) or labels.is_floating_point():
        raise InputError(
            f"{n} images need as many whole-numbered labels, got {labels.dtype} "
            f"{tuple(labels.shape)}."
        )
    if n and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise InputError(
            f"Labels run from {int(labels.min())} to {int(labels.max())}, "
            f"not within 0..{classes - 1}."
        )
    return labels.long()
