"""What servers and devices say to each other, and what is believed of it.

    ("fedgan-about", 0)              server    which networks, images and classes
    ("fedgan-turn", turn)            server    who trains in this turn, or that all is over
    ("fedgan-task", turn, device)    server    what that device does
    ("fedgan-state", turn)           server    the learning state to begin from
    ("fedgan-metadata", version)     device    samples per class, memory, compute; nothing else
    ("fedgan-report", turn)          device    its losses, and which metadata hold now
    ("fedgan-update", turn)          device    the learning state that it has come to

Documents are JSON, bounded and checked by the transport (`transport/documents.py`); here is what
stands in them. States are vectors (`state_vector.py`).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import asdict, dataclass
from typing import Any

from garfield.core.bounds import shown
from garfield.core.errors import InputError
from garfield.transport.contract import NEWEST, Key, VectorKind, declare_kind
from garfield.transport.documents import Document, DocumentKind

_FOR_EVER = 1 << 61  # steps: more than there are turns

ABOUT = declare_kind(DocumentKind("fedgan-about", kept_steps=_FOR_EVER, most_bytes=32_768))
TURN = declare_kind(DocumentKind("fedgan-turn", most_bytes=16_384))
TASK = declare_kind(DocumentKind("fedgan-task", most_bytes=512))
STATE = declare_kind(VectorKind("fedgan-state", kept_steps=1))
METADATA = declare_kind(DocumentKind("fedgan-metadata", kept_steps=_FOR_EVER, most_bytes=16_384))
REPORT = declare_kind(DocumentKind("fedgan-report", most_bytes=512))
UPDATE = declare_kind(VectorKind("fedgan-update", kept_steps=1))

SERVERS_SAY = frozenset({ABOUT.name, TURN.name, TASK.name, STATE.name})
DEVICES_SAY = frozenset({METADATA.name, REPORT.name, UPDATE.name})


def later_than(turn: int) -> Key:
    """Of whichever turn is the newest, if it is later than that one."""
    return Key(TURN.name, NEWEST, turn + 1)


@dataclass(frozen=True)
class About:
    """What a device must know to take part, whatever it has been told by its own user."""

    gan: str
    """A name with parameters, as in ``lsgan(width=0.25)``."""
    image: tuple[int, int, int]
    """(channels, height, width)"""
    classes: tuple[str, ...]
    conditional: bool
    optimizer_state: str
    secure_aggregation: bool = False

    def as_json(self) -> Document:
        """What is sent."""
        return {**asdict(self), "image": list(self.image), "classes": list(self.classes)}

    @staticmethod
    def read(content: Document) -> About:
        """What a server has sent, checked."""
        fields = {field.name for field in dataclasses.fields(About)}
        if set(content) != fields:
            raise InputError(f"This does not say what is trained: {shown(content)}.")
        image, classes = content["image"], content["classes"]
        whole = isinstance(image, list) and len(image) == 3
        if not whole or not all(type(n) is int and 1 <= n <= 4096 for n in image):
            raise InputError(f"Images are channels, height and width, got {shown(image)}.")
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
            raise InputError(f"Classes are names, got {shown(classes)}.")
        for name in ("gan", "optimizer_state"):
            if not isinstance(content[name], str):
                raise InputError(f"{name} is a text, got {shown(content[name])}.")
        return About(
            content["gan"], (image[0], image[1], image[2]), tuple(classes),
            content["conditional"] is True, content["optimizer_state"],
            content["secure_aggregation"] is True,
        )  # fmt: skip


@dataclass(frozen=True)
class Announcement:
    """Who trains in a turn, or that there will be no more."""

    round: int
    devices: frozenset[int] = frozenset()
    ended: str | None = None
    """Why it is over; None as long as it is not."""

    def as_json(self) -> Document:
        """What is sent."""
        return {"round": self.round, "devices": sorted(self.devices), "ended": self.ended}

    @staticmethod
    def read(content: Document) -> Announcement:
        """What a server has sent, checked."""
        if set(content) != {"round", "devices", "ended"}:
            raise InputError(f"This announces nothing: {shown(content)}.")
        number, devices, ended = content["round"], content["devices"], content["ended"]
        if type(number) is not int or number < 0 or not isinstance(devices, list):
            raise InputError(f"A round has a number and devices, got {shown(content)}.")
        if not all(type(device) is int and device >= 0 for device in devices):
            raise InputError(f"Devices are numbers, got {shown(devices)}.")
        if ended is not None and not isinstance(ended, str):
            raise InputError(f"A training ends with a reason, got {shown(ended)}.")
        return Announcement(number, frozenset(devices), ended)


@dataclass(frozen=True)
class Report:
    """What a device tells beside its state."""

    generator_loss: float
    discriminator_loss: float
    metadata: int
    """The version of its metadata that holds now."""
    epsilon: float | None = None
    """What it has spent of its privacy so far, if it keeps an account."""
    spent: bool = False
    """It takes no part any more: it cannot pay for another such task, or not for this one."""

    def as_json(self) -> Document:
        """What is sent; a loss that is no number is no report, and its state no state."""
        return {
            "generator_loss": _finite(self.generator_loss),
            "discriminator_loss": _finite(self.discriminator_loss),
            "metadata": self.metadata, "epsilon": self.epsilon, "spent": self.spent,
        }  # fmt: skip

    @staticmethod
    def read(name: str, content: Any) -> Report:
        """What a device of that name has sent, checked."""
        if set(content) != {field.name for field in dataclasses.fields(Report)}:
            raise InputError(f"{name} must report losses and metadata, got {shown(content)}.")
        for loss in (content["generator_loss"], content["discriminator_loss"]):
            if isinstance(loss, bool) or not isinstance(loss, (int, float)):
                raise InputError(f"{name} reports a loss of {shown(loss)}.")
        version = content["metadata"]
        if type(version) is not int or not 0 <= version < _FOR_EVER:
            raise InputError(f"{name} reports metadata of version {shown(version)}.")
        epsilon = content["epsilon"]
        whole = type(epsilon) in (int, float) and math.isfinite(epsilon) and epsilon >= 0
        if epsilon is not None and not whole:
            raise InputError(f"{name} reports to have spent {shown(epsilon)} of its privacy.")
        return Report(
            float(content["generator_loss"]), float(content["discriminator_loss"]), version,
            None if epsilon is None else float(epsilon), content["spent"] is True,
        )  # fmt: skip


def _finite(loss: float) -> float:
    return loss if math.isfinite(loss) else math.copysign(1e300, loss if loss == loss else 1.0)
