"""Weights on their way to a server: packed once, named by their hash, checked when they arrive.

A client packs the weights of a prefix as one safetensors file and puts it into its own container
under `.garfield/weights/<sha256>.safetensors`, if it is not there yet. Requests carry the hash
alone: AlexNet's prefix has 161 MB.

safetensors is a length, a JSON header and plain numbers: nothing in it can run. The header is
read here instead of by the library's loader, so that tensors can be views of what was received
instead of copies, and because a server checks more than that the file is well formed: that it
holds every tensor of the prefix, in its shape and type. What else it holds is left alone, so one
file of all frozen layers serves every split.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from garfield.core.errors import (
    InputError,
    MissingDependency,
    ObjectDamaged,
    ObjectMissing,
    RequestRefused,
)
from garfield.split.wire.checks import json_object

if TYPE_CHECKING:
    import mmap

    from garfield.split.stores.contract import Store

    Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap

_FOLDER = ".garfield/weights"
_MOST_HEADER = 4 << 20  # bytes: 700 tensors of DenseNet-121 take 70 KB
_MOST_TENSORS = 50_000
_HASH = re.compile(r"[0-9a-f]{64}")
_DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F64": torch.float64,
    "I64": torch.int64,
}


@dataclass(frozen=True)
class UploadedWeights:
    """Weights that lie in a container."""

    hash: str
    name: str
    bytes_sent: int
    """0 if they were there already."""


def pack_weights(piece: nn.Module) -> bytes:
    """All tensors of a piece's state dict as one file; the same weights give the same bytes."""
    try:
        from safetensors.torch import save
    except ImportError:
        raise MissingDependency(
            "Weights travel as safetensors, which is not installed. "
            "Install it with: pip install 'garfield-ml[split]'"
        ) from None
    # cloned, as safetensors refuses tensors that share memory; contiguous, as it wants them
    state = {
        key: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for key, value in piece.state_dict().items()
    }
    packed: bytes = save(state)
    return packed


def weights_hash(data: Buffer) -> str:
    """The name of a file's content: its SHA-256."""
    return hashlib.sha256(data).hexdigest()


def weights_name(digest: str) -> str:
    """Where in a container weights of that hash lie; InputError for what is no hash."""
    if not isinstance(digest, str) or not _HASH.fullmatch(digest):
        raise InputError(
            f"Weights are named by 64 hexadecimal digits, small ones; got {str(digest)[:80]!r}."
        )
    return f"{_FOLDER}/{digest}.safetensors"


def put_weights(store: Store, piece: nn.Module) -> UploadedWeights:
    """Put a piece's weights into a container, unless they are there."""
    data = pack_weights(piece)
    digest = weights_hash(data)
    name = weights_name(digest)
    try:
        if store.size(name) == len(data):
            return UploadedWeights(digest, name, 0)
    except ObjectMissing:
        pass
    store.put(name, data)
    return UploadedWeights(digest, name, len(data))


def weights_bytes(piece: nn.Module) -> int:
    """How many bytes the file of a piece's weights can have at most."""
    state = piece.state_dict()
    names = sum(len(key.encode()) for key in state)
    numbers: int = sum(value.numel() * value.element_size() for value in state.values())
    return numbers + names + 256 * len(state) + 1024


def load_weights(piece: nn.Module, data: Buffer, digest: str | None = None) -> None:
    """Fill a piece with weights that have come from elsewhere.

    A piece without memory (`empty_prefix`) gets views of `data`, which must stay as it is; any
    other gets copies. ObjectDamaged if the hash is another, or if the file is not what it should
    be for this piece; the piece then stays as it was.
    """
    if digest is not None:
        name = weights_name(digest)
        if weights_hash(data) != digest:
            raise ObjectDamaged(
                f"{name} was altered: its content has the hash {weights_hash(data)[:16]}…. "
                "Remove it, and the client will put it there again."
            )
    found = read_weights(data)
    wanted = piece.state_dict()
    for key, own in wanted.items():
        if key not in found:
            raise ObjectDamaged(f"The weights lack {key}, which the layers asked for need.")
        if found[key].shape != own.shape or found[key].dtype != own.dtype:
            raise ObjectDamaged(
                f"The weights hold {key} as {_told(found[key])}, and the layers asked for "
                f"need {_told(own)}."
            )
    chosen = {key: found[key] for key in wanted}
    empty = all(value.is_meta for value in wanted.values())
    piece.load_state_dict(chosen, assign=empty)
    if empty:
        piece.requires_grad_(False)


def read_weights(data: Buffer) -> dict[str, torch.Tensor]:
    """Tensors by name, as views of `data`; ObjectDamaged unless it is sound safetensors."""
    size = len(data)
    if size < 8:
        raise ObjectDamaged(f"Weights begin with 8 bytes of length, and there are {size} in all.")
    (length,) = struct.unpack_from("<Q", data)
    if length > min(_MOST_HEADER, size - 8):
        raise ObjectDamaged(
            f"The weights' header would have {length} bytes of {size - 8}; "
            f"at most {_MOST_HEADER} are read."
        )
    start = 8 + length
    entries = _header(bytes(memoryview(data)[8:start]))
    if len(entries) > _MOST_TENSORS:
        raise ObjectDamaged(f"The weights hold {len(entries)} tensors, more than {_MOST_TENSORS}.")
    spans = sorted(_span(key, entry, size - start) for key, entry in entries.items())
    end = 0
    for begin, after, key in spans:  # one behind the other, so that none is read twice
        if begin != end:
            raise ObjectDamaged(f"The weights' {key} begins at byte {begin} instead of {end}.")
        end = after
    if end != size - start:
        raise ObjectDamaged(f"The weights end at byte {end}, and there are {size - start}.")
    return {key: _view(data, start, key, entry) for key, entry in entries.items()}


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json_object(text, "The weights' header")
    except RequestRefused as refused:
        raise ObjectDamaged(str(refused)) from None
    header.pop("__metadata__", None)
    return header


def _span(key: str, entry: Any, room: int) -> tuple[int, int, str]:
    """Where a tensor begins and ends; ObjectDamaged unless dtype, shape and place agree."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ObjectDamaged(f"The weights' {key[:80]} is not described by type, shape and place.")
    dtype, shape, place = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ObjectDamaged(f"The weights' {key[:80]} is of type {str(dtype)[:20]}; not taken.")
    if not _sizes(shape, most=8) or not _sizes(place, most=2) or len(place) != 2:
        raise ObjectDamaged(f"The weights' {key[:80]} has a shape or place that cannot be.")
    needed = math.prod(shape) * _DTYPES[dtype].itemsize
    begin, end = place
    if end - begin != needed or end > room:
        raise ObjectDamaged(
            f"The weights' {key[:80]} needs {needed} bytes and lies at {begin}..{end} of {room}."
        )
    return begin, end, key


def _sizes(value: Any, *, most: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= most
        and all(type(each) is int and 0 <= each < 2**40 for each in value)
    )


def _view(data: Buffer, start: int, key: str, entry: dict[str, Any]) -> torch.Tensor:
    dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    offset = start + entry["data_offsets"][0]
    if offset % dtype.itemsize:
        raise ObjectDamaged(f"The weights' {key[:80]} lies at byte {offset}: not aligned.")
    with warnings.catch_warnings():  # that the bytes are read-only: weights here are only read
        warnings.simplefilter("ignore")
        return torch.frombuffer(data, dtype=dtype, count=count, offset=offset).reshape(shape)


def _told(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
