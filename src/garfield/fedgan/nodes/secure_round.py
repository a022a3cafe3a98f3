"""Secure aggregation between processes: the four steps of a turn, as documents and one vector.

    device                                       server
    ("fedgan-keys", turn)         ── pulled ──▶  who is in
                                  ◀── pulled ──  ("fedgan-secure", turn, device)   its weight
                                  ◀── pulled ──  ("fedgan-everyone", turn)         all keys
    ("fedgan-sealed", turn)       ── pulled ──▶
                                  ◀── pulled ──  ("fedgan-passed", turn, device)   pieces for it
    ("fedgan-masked", turn)       ── pulled ──▶  added up
                                  ◀── pulled ──  ("fedgan-arrived", turn)          whose are in
    ("fedgan-revealed", turn)     ── pulled ──▶  unmasked

What is added up is w_k · (what device k changed), as 64-bit fixed-point numbers: the sum over all
who arrived, divided by the sum of their weights, is the weighted mean of their states minus the
state before, to 1e-10 and better. It takes twice the bytes of a plain update. Who is lost before
its vector has arrived is left out. More than half of the devices must stay to the end, else the
round is given up, and nobody's vector was seen.

It hides vectors from a server that keeps to this and looks at all that it gets. One that does not
could hand every device keys of its own making for all the others, and see through their masks. A
weight is bounded from below, and with it how far one device can be made to stand out in the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from garfield.core.bounds import shown
from garfield.core.errors import InputError
from garfield.core.types import Floats
from garfield.fedgan.secure_aggregation import (
    AggregationDevice,
    AggregationServer,
    FixedPoint,
    PublicKeys,
    Revealed,
)
from garfield.nodes.outbox import Outbox
from garfield.transport.contract import (
    Key,
    Payload,
    Transport,
    VectorKind,
    all_of,
    declare_kind,
)
from garfield.transport.documents import Document, DocumentKind, pull_documents

_LONG = 1 << 16
KEYS = declare_kind(DocumentKind("fedgan-keys", most_bytes=512))
SECURE = declare_kind(DocumentKind("fedgan-secure", most_bytes=256))
EVERYONE = declare_kind(DocumentKind("fedgan-everyone", most_bytes=_LONG))
SEALED = declare_kind(DocumentKind("fedgan-sealed", most_bytes=_LONG))
PASSED = declare_kind(DocumentKind("fedgan-passed", most_bytes=_LONG))
MASKED = declare_kind(VectorKind("fedgan-masked", dtype=np.dtype(np.uint64), kept_steps=1))
ARRIVED = declare_kind(DocumentKind("fedgan-arrived", most_bytes=_LONG))
REVEALED = declare_kind(DocumentKind("fedgan-revealed", most_bytes=_LONG))

SERVERS_SAY = frozenset({SECURE.name, EVERYONE.name, PASSED.name, ARRIVED.name})
DEVICES_SAY = frozenset({KEYS.name, SEALED.name, MASKED.name, REVEALED.name})

MOST = 200
"""Devices of a round: what one document holds the keys of."""
CLIP = 2.0**20
"""What a number may change by in a round, at most."""
LEAST_WEIGHT = 0.01
"""Of a device, beside the one that counts most."""


def numbers_for(devices: int) -> FixedPoint:
    """How changes of so many devices are written."""
    return FixedPoint(most=devices, clip=CLIP, bits=64)


def threshold_of(devices: int) -> int:
    """How many must stay to the end: more than half."""
    return devices // 2 + 1


def weights_of(shares: Mapping[str, float]) -> dict[str, float]:
    """What each device multiplies by: its share, of those that count least raised to the least."""
    largest = max(shares.values())
    return {name: max(share / largest, LEAST_WEIGHT) for name, share in shares.items()}


def session_of(turn: int) -> bytes:
    """No other turn of this training has it; keys are new in each, so none of any other has."""
    return f"fedgan turn {turn}".encode()


# -- the server's side ------------------------------------------------------------------------


@dataclass
class SecureServerRound:
    """One turn, seen by the server. `left_s` says how much time the round has left."""

    transport: Transport
    outbox: Outbox
    turn: int
    length: int
    left_s: Callable[[], float]
    short_s: float
    """For what needs no training."""
    silent: dict[str, str] = field(default_factory=dict)
    """Why each device that is left out is, by name."""

    def agree(self, weights: Mapping[str, float], numbers: Mapping[str, int]) -> None:
        """Steps 1 and 2: keys, and pieces of secrets. RunError if too few are there."""
        count = len(weights)
        self._sum = AggregationServer(
            session_of(self.turn), threshold_of(count), self.length, numbers_for(count)
        )
        for name, weight in weights.items():
            told = {"threshold": threshold_of(count), "devices": count, "weight": weight}
            key = Key(SECURE.name, self.turn, numbers[name])
            self.outbox.publish(key, SECURE.to_payload(told))
        self._ask(KEYS, [*weights], lambda name, told: self._sum.add_keys(name, _keys(told)))
        everyone = {name: _hex_of(keys) for name, keys in self._sum.everyone.items()}
        self.outbox.publish(Key(EVERYONE.name, self.turn), EVERYONE.to_payload(everyone))
        self._ask(SEALED, [*everyone], lambda name, told: self._sum.add_sealed(name, _bytes(told)))
        self._sharing = [name for name in everyone if name not in self.silent]
        for name in self._sharing:
            passed = {sender: piece.hex() for sender, piece in self._sum.sealed_for(name).items()}
            key = Key(PASSED.name, self.turn, numbers[name])
            self.outbox.publish(key, PASSED.to_payload(passed))

    def collect(self) -> list[str]:
        """Step 3: vectors behind their masks; who is in the sum."""
        replies = self.transport.pull(
            self._sharing, Key(MASKED.name, self.turn), length=self.length,
            until=all_of(self._sharing), timeout_s=max(self.short_s, self.left_s()),
        )  # fmt: skip
        for name, row in zip(replies.names, replies.rows, strict=True):
            self._sum.add_masked(name, np.asarray(row))
        for name, why in replies.silent.items():
            self.silent[name] = f"{name} {why}"
        return list(replies.names)

    def mean(self, weights: Mapping[str, float]) -> npt.NDArray[np.float64]:
        """Step 4: the weighted mean of what those who arrived have changed."""
        arrived = sorted(self._sum.arrived)
        self.outbox.publish(Key(ARRIVED.name, self.turn), ARRIVED.to_payload({"names": arrived}))
        told: dict[str, Revealed] = {}
        lost: dict[str, str] = {}
        self._ask(REVEALED, arrived, lambda name, said: told.update({name: _revealed(said)}), lost)
        total = self._sum.unmask(told)
        return self._sum.mean(total, sum(weights[name] for name in arrived))

    def _ask(
        self, kind: DocumentKind, names: Sequence[str], take: Callable[[str, Document], Any],
        silent: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        found = pull_documents(
            self.transport, names, Key(kind.name, self.turn), until=all_of(names),
            timeout_s=self.short_s,
        )  # fmt: skip
        noted = self.silent if silent is None else silent
        for name in names:
            try:
                if name not in found.documents:
                    raise InputError(f"{name} {found.replies.silent.get(name)}")
                take(name, found.documents[name])
            except InputError as problem:
                noted[name] = str(problem)


# -- a device's side --------------------------------------------------------------------------


@dataclass
class SecureDeviceRound:
    """One turn, seen by a device."""

    name: str
    number: int
    outbox: Outbox
    turn: int
    ask: Callable[[Key], Document]
    """Gets a document from the server of the turn."""

    def agree(self) -> None:
        """Steps 1 and 2, before training."""
        told = self._told(SECURE, self.number)
        threshold, self._devices, self._weight = _terms(told)
        self._own = AggregationDevice(self.name, session_of(self.turn), threshold)
        keys = {"keys": _hex_of(self._own.advertise())}
        self.outbox.publish(Key(KEYS.name, self.turn), KEYS.to_payload(keys))
        everyone = {name: _keys({"keys": each}) for name, each in self._told(EVERYONE).items()}
        sealed = {name: piece.hex() for name, piece in self._own.share(everyone).items()}
        self.outbox.publish(Key(SEALED.name, self.turn), SEALED.to_payload(sealed))

    def send(self, change: Floats) -> None:
        """Step 3: what was changed, behind all masks."""
        passed = _bytes(self._told(PASSED, self.number))
        words = numbers_for(self._devices).encode(change.astype(np.float64) * self._weight)
        masked = self._own.mask(passed, words)
        self.outbox.publish(Key(MASKED.name, self.turn), cast(Payload, masked), copy=False)

    def reveal(self) -> None:
        """Step 4: what the server needs to unmask the sum, and nothing else."""
        names = self._told(ARRIVED).get("names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError("A list of devices was waited for.")
        found = self._own.reveal(names)
        document = {
            "masking_keys": {name: piece.hex() for name, piece in found.masking_keys.items()},
            "self_masks": {name: piece.hex() for name, piece in found.self_masks.items()},
        }
        self.outbox.publish(Key(REVEALED.name, self.turn), REVEALED.to_payload(document))

    def _told(self, kind: DocumentKind, number: int = 0) -> Document:
        return self.ask(Key(kind.name, self.turn, number))


# -- documents --------------------------------------------------------------------------------


def _hex_of(keys: PublicKeys) -> list[str]:
    return [keys.sealing.hex(), keys.masking.hex(), keys.self_mask.hex()]


def _keys(told: Mapping[str, Any]) -> PublicKeys:
    parts = told.get("keys")
    if not isinstance(parts, list) or len(parts) != 3:
        raise InputError("Three keys were waited for.")
    return PublicKeys(*map(_unhexed, parts))


def _bytes(told: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: _unhexed(piece) for name, piece in told.items()}


def _revealed(told: Mapping[str, Any]) -> Revealed:
    parts = [told.get("masking_keys"), told.get("self_masks")]
    if not all(isinstance(part, dict) for part in parts):
        raise InputError("Pieces of keys and of masks were waited for.")
    return Revealed(*(_bytes(part) for part in parts if isinstance(part, dict)))


def _unhexed(text: object) -> bytes:
    if not isinstance(text, str):
        raise InputError("Bytes are written as a text of hexadecimal digits.")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InputError("Bytes are written as a text of hexadecimal digits.") from None


def _terms(told: Document) -> tuple[int, int, float]:
    threshold, devices, weight = (told.get(k) for k in ("threshold", "devices", "weight"))
    if type(threshold) is not int or type(devices) is not int or not 2 <= devices <= MOST:
        raise InputError("A threshold and a number of devices were waited for.")
    if threshold != threshold_of(devices):
        raise InputError(f"More than half of {devices} devices must stay, not {threshold}.")
    if not isinstance(weight, float) or not LEAST_WEIGHT <= weight <= 1:
        raise InputError(f"A weight is within {LEAST_WEIGHT}..1, got {shown(weight)}.")
    return threshold, devices, weight
