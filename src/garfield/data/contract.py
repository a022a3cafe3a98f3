"""What nodes need of a data set, whatever its samples are: images, tables, tokens."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

Split: TypeAlias = Literal["train", "test"]


class LearningData(Protocol):
    """Inputs and targets, split for training and testing."""

    @property
    def class_count(self) -> int | None:
        """How many classes there are; None where targets are no numbers of classes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input, as a model takes it."""

    def inputs(self, split: Split) -> Any:
        """The inputs of a split, as stored: (count, ...)."""

    def targets(self, split: Split) -> Any:
        """The targets of a split, int64 or float32: (count, ...)."""

    def prepare(self, stored: Any) -> Any:
        """What a model takes, made of some inputs as stored."""
