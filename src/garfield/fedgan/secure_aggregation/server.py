"""The server's side of secure aggregation: passes pieces on, adds vectors up, unmasks the sum.

What devices send is not to be believed: keys and vectors are checked for their size, and what
pieces are put together to is compared with what the device had advertised, so that wrong pieces
spoil no sum. A wrong *vector* cannot be noticed: that is what hiding it means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import comb
from random import SystemRandom
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from garfield.core.errors import InputError, RunError
from garfield.fedgan.secure_aggregation import masks, shamir
from garfield.fedgan.secure_aggregation.device import Revealed
from garfield.fedgan.secure_aggregation.fixed_point import FixedPoint, Words
from garfield.fedgan.secure_aggregation.masks import PublicKeys

_LONGEST_SEALED = 2 * shamir.PIECE + 16
_TRIES = 1000
"""Choices of pieces to put together, where some of them are wrong."""


T = TypeVar("T")


def _choices(pieces: Sequence[T], threshold: int) -> Iterator[Sequence[T]]:
    """All choices of so many pieces; the first, and others at random, where there are too many.

    In order, the first thousand of 14 pieces or more all hold the first one, which may be wrong.
    Nobody can know beforehand which are drawn: with l of the pieces wrong, one in about 2^l is
    without any.
    """
    if comb(len(pieces), threshold) <= _TRIES:
        yield from combinations(pieces, threshold)
        return
    yield pieces[:threshold]
    for _ in range(_TRIES - 1):
        yield SystemRandom().sample(pieces, threshold)


class AggregationServer:
    """The sum of one round. Devices that are lost between two steps are left out of the next."""

    def __init__(self, session: bytes, threshold: int, length: int, numbers: FixedPoint) -> None:
        self._session, self._threshold = session, threshold
        self._numbers = numbers
        self._keys: dict[str, PublicKeys] = {}
        self._sealed: dict[str, dict[str, bytes]] = {}
        self._total: Words = np.zeros(length, numbers.dtype)
        self._arrived: set[str] = set()
        self._closed = False

    def add_keys(self, name: str, keys: PublicKeys) -> None:
        """Step 1: a device takes part."""
        if self._sealed:
            raise InputError(f"{name} has come too late: others have shared their secrets already.")
        if len(self._keys) >= self._numbers.most:
            raise InputError(f"There are {self._numbers.most} devices already, and no more may be.")
        self._keys[name] = keys

    @property
    def everyone(self) -> Mapping[str, PublicKeys]:
        """Who has advertised: for all of them, at the end of step 1."""
        self._check_enough(len(self._keys), "advertised keys")
        return dict(self._keys)

    def add_sealed(self, name: str, sealed: Mapping[str, bytes]) -> None:
        """Step 2: the pieces of a device's secrets; InputError unless there is one for each."""
        others = set(self._keys) - {name}
        if name not in self._keys or set(sealed) != others:
            raise InputError(
                f"{name} has not sealed one piece for each of the {len(others)} others."
            )
        if any(len(piece) > _LONGEST_SEALED for piece in sealed.values()):
            raise InputError(f"{name} has sealed pieces beyond {_LONGEST_SEALED} bytes.")
        self._sealed[name] = dict(sealed)

    def sealed_for(self, name: str) -> dict[str, bytes]:
        """What is passed on to a device at the end of step 2."""
        self._check_enough(len(self._sealed), "shared their secrets")
        return {sender: sealed[name] for sender, sealed in self._sealed.items() if sender != name}

    def add_masked(self, name: str, words: Words) -> None:
        """Step 3: a device's vector, behind its masks."""
        if name not in self._sealed or name in self._arrived or self._closed:
            raise InputError(f"No vector of {name} is waited for.")
        if words.shape != self._total.shape or words.dtype != self._total.dtype:
            raise InputError(
                f"{name} has sent {words.shape} × {words.dtype} instead of {self._total.shape} × "
                f"{self._total.dtype}."
            )
        np.add(self._total, words, out=self._total)
        self._arrived.add(name)

    @property
    def arrived(self) -> frozenset[str]:
        """Whose vectors are in the sum, at the end of step 3: nobody else's will be."""
        self._check_enough(len(self._arrived), "sent their vectors")
        self._closed = True
        return frozenset(self._arrived)

    def unmask(self, revealed: Mapping[str, Revealed]) -> Words:
        """Step 4: the sum of the words of all who arrived, from what some of them revealed."""
        arrived = self.arrived
        told = {name: pieces for name, pieces in revealed.items() if name in arrived}
        self._check_enough(len(told), "revealed what they know")
        total = self._total.copy()
        for name in sorted(arrived):
            pieces = {by: each.self_masks.get(name) for by, each in told.items()}
            masks.add_mask(total, self._self_mask(name, pieces), self._session, negative=True)
        for name in sorted(set(self._sealed) - arrived):
            pieces = {by: each.masking_keys.get(name) for by, each in told.items()}
            self._take_out(total, name, self._masking_key(name, pieces))
        return total

    def mean(self, total: Words, weight: float | None = None) -> npt.NDArray[np.float64]:
        """The mean of the vectors from their sum; with weights in them, their sum is `weight`."""
        return self._numbers.decode(total) / (len(self._arrived) if weight is None else weight)

    def _take_out(self, total: Words, lost: str, secret: bytes) -> None:
        """What the others have added for a device that was lost."""
        key = masks.private_key(secret)
        for other in sorted(self._arrived):
            seed = masks.agreed_key(
                key, self._keys[other].masking, "masking", self._session, (lost, other)
            )
            masks.add_mask(total, seed, self._session, negative=other < lost)

    def _self_mask(self, name: str, pieces: Mapping[str, bytes | None]) -> bytes:
        for seed in self._joined(pieces):
            if masks.digest(seed, self._session) == self._keys[name].self_mask:
                return seed
        raise self._cannot("own mask", name)

    def _masking_key(self, name: str, pieces: Mapping[str, bytes | None]) -> bytes:
        for secret in self._joined(pieces):
            if masks.public_bytes(masks.private_key(secret)) == self._keys[name].masking:
                return secret
        raise self._cannot("key", name)

    def _joined(self, pieces: Mapping[str, bytes | None]) -> Iterator[bytes]:
        """Secrets that some `threshold` of the pieces give; the first, if nobody lies."""
        places = {name: place for place, name in enumerate(sorted(self._keys), start=1)}
        right = sorted(
            (places[by], piece)
            for by, piece in pieces.items()
            if piece is not None and len(piece) == shamir.PIECE
        )
        for some in _choices(right, self._threshold):
            secret = shamir.joined(dict(some))
            if secret is not None:
                yield secret

    def _cannot(self, what: str, name: str) -> RunError:
        return RunError(
            f"The {what} of {name} cannot be put together: fewer than {self._threshold} devices "
            "gave a right piece of it. The round is given up; nobody's vector was seen."
        )

    def _check_enough(self, count: int, did: str) -> None:
        if count < self._threshold:
            raise RunError(
                f"Only {count} devices have {did}, and {self._threshold} are needed: the round is "
                "given up; nobody's vector was seen."
            )
