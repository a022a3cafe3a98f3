"""A device's side of secure aggregation: four steps, each of them once."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from garfield.core.errors import InputError, RunError
from garfield.fedgan.secure_aggregation import masks, shamir
from garfield.fedgan.secure_aggregation.fixed_point import Words
from garfield.fedgan.secure_aggregation.masks import PublicKeys
from garfield.fedgan.secure_aggregation.shamir import RandomBytes


@dataclass(frozen=True)
class Revealed:
    """Pieces that a device gives when it knows who was lost."""

    masking_keys: Mapping[str, bytes]
    """Of those whose vector did not arrive."""
    self_masks: Mapping[str, bytes]
    """Of those whose vector did."""


class AggregationDevice:
    """One device in one round.

    `session` names the round, the same for all and for no other round; `threshold` is how many
    must stay until the end, more than half of those who begin: two halves that are told of
    different losses could give away both of a device's secrets otherwise.
    """

    def __init__(
        self, name: str, session: bytes, threshold: int, random_bytes: RandomBytes = os.urandom
    ) -> None:
        self.name, self._session, self._threshold = name, session, threshold
        self._random_bytes = random_bytes
        self._sealing_key = masks.private_key(random_bytes(masks.KEY))
        self._masking_secret = random_bytes(masks.KEY)
        self._masking_key = masks.private_key(self._masking_secret)
        self._seed = random_bytes(masks.KEY)
        self._everyone: Mapping[str, PublicKeys] = {}
        self._sharing: frozenset[str] = frozenset()
        self._pieces: dict[str, tuple[bytes, bytes]] = {}
        self._own_pieces: tuple[bytes, bytes] = (b"", b"")
        self._step = 1

    def advertise(self) -> PublicKeys:
        """Step 1: the keys by which others agree on secrets with this device."""
        return PublicKeys(
            masks.public_bytes(self._sealing_key),
            masks.public_bytes(self._masking_key),
            masks.digest(self._seed, self._session),
        )

    def share(self, everyone: Mapping[str, PublicKeys]) -> dict[str, bytes]:
        """Step 2: its secrets in pieces, one sealed for each of the others who advertised."""
        self._take_step(2, "share")
        _check_threshold(self._threshold, len(everyone))
        if everyone.get(self.name) != self.advertise():
            raise InputError(f"{self.name} is not among those who advertised, with its own keys.")
        if len({keys.masking for keys in everyone.values()}) < len(everyone):
            raise InputError("Two devices have advertised the same key: one of them is no device.")
        self._everyone = dict(everyone)
        names, count = sorted(everyone), len(everyone)
        of_key = shamir.split(self._masking_secret, self._threshold, count, self._random_bytes)
        of_seed = shamir.split(self._seed, self._threshold, count, self._random_bytes)
        pieces = dict(zip(names, zip(of_key, of_seed, strict=True), strict=True))
        self._own_pieces = pieces.pop(self.name)
        return {
            other: masks.seal(
                self._sealing_with(other), b"".join(pair), self._about(self.name, other)
            )
            for other, pair in pieces.items()
        }

    def mask(self, sealed: Mapping[str, bytes], words: Words) -> Words:
        """Step 3: its vector behind all masks, given the pieces that others sealed for it.

        Who has sealed nothing was lost already. Pieces that cannot be read are of no use, and
        their sender's mask is added all the same.
        """
        self._take_step(3, "mask")
        strangers = set(sealed) - set(self._everyone) | ({self.name} & set(sealed))
        if strangers:
            raise InputError(f"Pieces of {sorted(strangers)}, who did not advertise.")
        self._sharing = frozenset(sealed) | {self.name}
        self._check_enough(len(self._sharing), "shared their secrets")
        for other, message in sealed.items():
            about = self._about(other, self.name)
            piece = masks.unseal(self._sealing_with(other), message, about)
            if piece is not None and len(piece) == 2 * shamir.PIECE:
                self._pieces[other] = piece[: shamir.PIECE], piece[shamir.PIECE :]
        self._pieces[self.name] = self._own_pieces
        total = np.array(words)
        masks.add_mask(total, self._seed, self._session)
        for other in sorted(sealed):
            seed = masks.agreed_key(
                self._masking_key, self._everyone[other].masking, "masking", self._session,
                (self.name, other),
            )  # fmt: skip
            masks.add_mask(total, seed, self._session, negative=self.name > other)
        return total

    def reveal(self, arrived: Collection[str]) -> Revealed:
        """Step 4: pieces of the keys of those who were lost, and of the others' own masks.

        Once: whoever could ask again, with others lost, would get both.
        """
        self._take_step(4, "reveal")
        arrived = frozenset(arrived)
        if not arrived <= self._sharing or self.name not in arrived:
            raise InputError(
                f"{self.name} cannot help with the sum of {sorted(arrived)}: it is not among them, "
                "or somebody is who had not shared any secret."
            )
        self._check_enough(len(arrived), "sent their vectors")
        lost = self._sharing - arrived
        return Revealed(
            {name: self._pieces[name][0] for name in lost if name in self._pieces},
            {name: self._pieces[name][1] for name in arrived if name in self._pieces},
        )

    def _take_step(self, step: int, name: str) -> None:
        if self._step != step - 1:
            raise RunError(
                f"{self.name} is at step {self._step} of secure aggregation, and {name} is step "
                f"{step}: each is done once, in order."
            )
        self._step = step

    def _check_enough(self, count: int, did: str) -> None:
        if count < self._threshold:
            raise RunError(f"Only {count} devices have {did}, and {self._threshold} are needed.")

    def _sealing_with(self, other: str) -> bytes:
        return masks.agreed_key(
            self._sealing_key, self._everyone[other].sealing, "sealing", self._session,
            (self.name, other),
        )  # fmt: skip

    def _about(self, sender: str, receiver: str) -> bytes:
        return self._session + f"\0{sender}\0{receiver}".encode()


def _check_threshold(threshold: int, count: int) -> None:
    if not count / 2 < threshold <= count:
        raise InputError(
            f"Of {count} devices more than half and at most all must stay to the end, got a "
            f"threshold of {threshold}."
        )
