"""What a code is: an allocation of gradients to workers, an encoder, and a decoder.

There are as many gradients a step as workers, n (the paper's P and B). Every one
of them is computed by r workers, so that each worker computes r as well; a
worker sends one row, a fixed linear combination of its gradients. The decoder
turns the rows into the mean of all n gradients, whatever f of the workers (the
paper's s) have sent, and says who lied. A worker that is silent is an erasure.

Bound: r ≥ 2f + 1, which no code can better. Beside s silent workers, who may be honest
and late, a code undoes e ≤ min(f, r − 1 − s − f) lies: a gradient is computed by r
workers, of whom s are silent, f may lie in concert and e are disbelieved, and one more
must be left to speak against the liars. What would need more is refused, never believed.
So r = 2f + 1 undoes f lies or f silences, or any f of both; f lies beside s honest
workers that are late need r ≥ 2f + s + 1. An application that waits for n − f rows only
has s = f, hence r ≥ 3f + 1. Of workers that have proved to be faulty, so that their rows are
not even looked at, each lowers f by one and counts as silent.

L. Chen, H. Wang, Z. Charles, D. Papailiopoulos: DRACO, ICML 2018. Their B may be
any multiple of n; here B = n, each gradient being that of one worker's batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from garfield.core.errors import BoundError, ConfigError, InputError
from garfield.core.registry import Registry
from garfield.core.types import Floats, Indices

CODES: Registry[type[Code]] = Registry("a code")


@dataclass(frozen=True)
class Decoded:
    """The mean of all gradients, and who tried to change it."""

    mean: Floats
    """(d,), the sum of the n gradients divided by n."""
    liars: Mapping[int, str] = field(default_factory=dict)
    """Workers whose rows were found false, by position, each with the reason."""


class Code(ABC):
    """A code for n workers of which f may lie, every gradient computed r times."""

    name: ClassVar[str]
    dtype: ClassVar[type[np.floating[Any]]]
    """The dtype of the numbers in a row."""
    numbers: ClassVar[int]
    """How many numbers of a row stand for one of the gradient."""

    def __init__(self, n: int, f: int, r: int = 0) -> None:
        """`r` is the least that undoes f lies, unless said; refuses what cannot be decoded."""
        self.n, self.f, self.r = n, f, r or self.least(n, 2 * f + 1)
        if n < 1 or f < 0 or r < 0:
            raise ConfigError(f"A code needs n >= 1, f >= 0 and r >= 0, got {n}, {f} and {r}.")
        if self.r < 2 * f + 1:
            raise BoundError(
                f"The {self.name} code needs r >= {2 * f + 1} (2f + 1) to undo f={f} lies, got "
                f"r={self.r}. Have every gradient computed more often, or lower f."
            )
        if self.r > n:
            raise BoundError(
                f"With r={self.r} every gradient is computed by {self.r} workers (2f + 1 of them "
                f"at least, f={f}), and there are {n}. Add workers, or lower f."
            )

    def __repr__(self) -> str:
        return f"<{self.name} code, n={self.n}, f={self.f}, r={self.r}>"

    @classmethod
    def least(cls, n: int, r: int) -> int:
        """The smallest redundancy of at least r that n workers can be cut into."""
        return r

    @abstractmethod
    def computed_by(self, worker: int) -> Indices:
        """(r,) the gradients that a worker computes, in the order of encoding."""

    @abstractmethod
    def encode(self, worker: int, gradients: Iterable[Floats]) -> Floats:
        """The row to send, from this worker's r gradients in the order of `computed_by`.

        They are taken one at a time: a generator may use one buffer for all.
        """

    def decode(
        self, rows: Sequence[Floats | None], *, secret: np.random.Generator, proven: int = 0
    ) -> Decoded:
        """The mean of all n gradients, from n rows by position; None for a silent worker.

        `secret` is where random numbers come from that no worker may foresee. `proven` of the
        silent are faulty for sure, so that as many fewer of the rest may lie. Raises
        DecodingError when more lied or were silent than can be undone: with up to f liars among
        them, the rows give the true mean and blame nobody honest, or they give none.
        """
        if len(rows) != self.n:
            raise InputError(f"The {self.name} code has n={self.n} rows, got {len(rows)}.")
        lengths = {len(row) for row in rows if row is not None}
        if len(lengths) != 1 or lengths.pop() % self.numbers:
            raise InputError("Rows must be there, of one length, and whole.")
        if not 0 <= proven <= sum(row is None for row in rows):
            raise InputError(f"proven={proven} workers are faulty, and fewer are silent.")
        return self._decode(rows, max(0, self.f - proven), secret)

    @abstractmethod
    def _decode(
        self, rows: Sequence[Floats | None], f: int, secret: np.random.Generator
    ) -> Decoded:
        """The same where up to f of those heard may lie."""


def code(name: str) -> Callable[[type[Code]], type[Code]]:
    """Register a code by name."""

    def register(made: type[Code]) -> type[Code]:
        made.name = name
        return CODES.add(name, made)

    return register


def make_code(name: str, n: int, f: int, r: int = 0) -> Code:
    """The code of that name."""
    return CODES[name](n, f, r)
