"""What a training asks now and then: how good is the generator? Numbers for metrics and summary.

    train(settings, directory, tell, evaluation=GeneratorEvaluation(judge_for("fashion")))

Classifiers are trained on generated images after the last round alone: that takes fifteen times
as long as judging them over the small CNN.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from garfield.fedgan.gan import Gan
from garfield.fedgan.judging.background import asked_labels, drawn_images
from garfield.fedgan.judging.judge import Judge, Judgement
from garfield.fedgan.judging.real_images import ENOUGH, MOST


class GeneratorEvaluation:
    """Judges a generator by images drawn from one seed, the same noise every time."""

    def __init__(
        self,
        judge: Judge,
        *,
        n: int = MOST,
        seed: int = 0,
        train_classifier: bool = True,
        labels_are_classes: bool = True,
    ) -> None:
        """`n` images; fewer than 5,000 are judged as well, and labelled as few.

        Labels of conditional networks may be clusters of no known class: then the judge's
        classifier says what an image is.
        """
        self.judge, self.n, self.seed = judge, n, seed
        self._train_classifier, self._labels_are_classes = train_classifier, labels_are_classes

    def __call__(self, gan: Gan, generator: nn.Module, *, last: bool) -> dict[str, Any]:
        """Judge the generator; after the last round, by what its images teach as well."""
        found = self.judge.score(
            drawn_images(gan, generator, self.n, self.seed),
            labels=asked_labels(gan, self.n) if self._labels_are_classes else None,
            train_classifier=last and self._train_classifier,
            few_are_enough=self.n < ENOUGH,
            seed=self.seed,
        )
        return as_metrics(found)


def as_metrics(found: Judgement) -> dict[str, Any]:
    """A judgement as plain numbers and texts, under the names that events have."""
    metrics: dict[str, Any] = {
        "fid": found.fid,
        "fid_label": found.label,
        "images": found.n,
        "real_images": found.real_n,
        "modes": found.modes,
        "classes": found.classes,
        "class_kl": found.kl,
        "class_shares": list(found.shares),
    }
    if found.accuracy_trained_on is not None and found.labels_by is not None:
        metrics["accuracy_trained_on_generated"] = found.accuracy_trained_on
        metrics["labels_by"] = found.labels_by.value
    return metrics
