"""Judge a generator beside its training: on a copy of it, in a thread of its own.

10,000 images of a full-size generator take half a minute here, more than a round of training.
Each judgement draws the same noise, so that two of them differ by their generators alone; a
conditional generator is asked for every class equally often. No random state but that of the
seed is touched, so training is the same with a judge beside it as without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from garfield.fedgan.gan import Gan
from garfield.fedgan.judging.judge import Judge, Judgement
from garfield.fedgan.judging.real_images import MOST
from garfield.runs.background import BackgroundWork

_BATCH = 500


class BackgroundJudge:
    """Judges one generator at a time. Use as a context: leaving it gives up what is not done."""

    def __init__(
        self,
        judge: Judge,
        gan: Gan,
        *,
        n: int = MOST,
        seed: int = 0,
        few_are_enough: bool = False,
        patience_s: float = 0.0,
    ) -> None:
        """`n` images are drawn from `seed`; training waits for judgements until one takes longer
        than `patience_s`, and for none from then on."""
        self.judge, self.gan, self.n, self.seed = judge, gan, n, seed
        self._few = few_are_enough
        self._generator, _ = gan.build(seed)
        self._work = BackgroundWork[Judgement](patience_s, "garfield-judge")

    def __enter__(self) -> BackgroundJudge:
        return self

    def __exit__(self, *_: object) -> None:
        self._work.give_up()

    def begin(
        self, generator: nn.Module, about: Mapping[str, Any], *, train_classifier: bool = False
    ) -> None:
        """Judge what the generator is now; the judgement before must have been taken."""
        assert not self.busy()  # or it would be written to while it draws
        self._generator.load_state_dict(generator.state_dict())
        self._work.begin(lambda: self._judged(train_classifier), about)

    def busy(self) -> bool:
        """Whether the judgement before is not done."""
        return self._work.busy()

    def result(self, *, patiently: bool = False) -> tuple[Mapping[str, Any], Judgement] | None:
        """Take the judgement that is done, and what it is about; with `patiently`, wait first.

        None if there is none, or it was taken already; raises what judging it raised.
        """
        return self._work.result(patiently=patiently)

    def _judged(self, train_classifier: bool) -> Judgement:
        labels = asked_labels(self.gan, self.n)
        drawn = drawn_images(self.gan, self._generator, self.n, self.seed)
        return self.judge.score(
            self._work.until_given_up(drawn),
            labels=labels,
            train_classifier=train_classifier,
            few_are_enough=self._few,
            seed=self.seed,
        )


def asked_labels(gan: Gan, n: int) -> torch.Tensor | None:
    """(n,) classes that a conditional generator is asked for, in turn; None for any other."""
    return None if gan.conditional_on is None else torch.arange(n) % gan.conditional_on


def drawn_images(
    gan: Gan, generator: nn.Module, n: int, seed: int, batch: int = _BATCH
) -> Iterator[torch.Tensor]:
    """Images of a generator in evaluation mode, some at a time, by noise from the seed."""
    rng, labels = torch.Generator().manual_seed(seed), asked_labels(gan, n)
    for at in range(0, n, batch):
        z = gan.noise(min(batch, n - at), rng)
        asked = None if labels is None else labels[at : at + len(z)]
        yield gan.generate(generator, z, asked)
