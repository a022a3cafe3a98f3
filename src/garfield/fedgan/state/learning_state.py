"""What a server must know to go on after a round, and how it is written: safetensors and JSON.

Tensors become the bytes of one safetensors file, everything else JSON text: nothing that is read
back runs code. A digest goes with them, so that what was damaged since is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from garfield.core.errors import InputError, MissingDependency

if TYPE_CHECKING:
    from torch import Tensor

LARGEST = 10**9
"""Bytes that a database takes as one value: SQLite a billion, PostgreSQL a little more."""


@dataclass(frozen=True)
class LearningState:
    """The state of a training after a round (FeGAN, Guirguis 2022, section 6.3.4)."""

    round: int
    """How many rounds are done; 0 before the first."""
    tensors: Mapping[str, Tensor]
    """Both networks, their buffers too, and optimizers and random generators where kept."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """What else may change in every round, as JSON takes it."""
    devices: Mapping[str, Any] = field(default_factory=dict)
    """What devices declared: their data's distribution and their capabilities. It may be long,
    and is written again only when it has changed."""
    choices: Any = None
    """Who was chosen in this round, and took part. It is appended to the history of all rounds,
    and not read back with the state."""


@dataclass(frozen=True)
class PackedState:
    """A learning state as a database keeps it."""

    round: int
    tensors: bytes
    document: str
    devices: str
    choices: str

    @property
    def digest(self) -> str:
        """Of all that is read back as the state."""
        found = blake2b(str(self.round).encode(), digest_size=32)
        for part in (self.tensors, self.document.encode(), self.devices.encode()):
            found.update(len(part).to_bytes(8, "little"))
            found.update(part)
        return found.hexdigest()


def packed(state: LearningState) -> PackedState:
    """A state as bytes and texts; InputError if something in it cannot be kept."""
    if isinstance(state.round, bool) or not isinstance(state.round, int) or state.round < 0:
        raise InputError(f"Rounds that are done count from 0, got {state.round!r}.")
    return PackedState(
        state.round,
        _tensors_to_bytes(state.tensors),
        text_of("document", state.document),
        text_of("devices", state.devices),
        text_of("choices", state.choices),
    )


def unpacked(kept: PackedState) -> LearningState:
    """The state that was packed, without the round's choices."""
    load = _safetensors().load
    return LearningState(
        kept.round, load(kept.tensors), json.loads(kept.document), json.loads(kept.devices)
    )


def text_of(what: str, value: Any) -> str:
    """A value as JSON in plain ASCII, which every database takes; the same for the same value."""
    try:
        return json.dumps(value, allow_nan=False, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(f"The state's {what} cannot be written as JSON: {problem}.") from None


def _tensors_to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if size >= LARGEST:
        raise InputError(
            f"A state of {size / 1e9:.2f} GB does not fit: a database takes up to "
            f"{LARGEST / 1e9:g} GB as one value. Keep less of it, optimizers for one."
        )
    # safetensors takes no views: tied weights are written twice, and read as two
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    try:
        data: bytes = _safetensors().save(whole)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise InputError(f"The state's tensors cannot be written: {problem}.") from None
    return data


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise MissingDependency(
            "Learning states are kept as safetensors, which is not installed. "
            "Install it with: pip install 'garfield-ml[fedgan]'"
        ) from None
    return safetensors.torch
