"""A vector in sealed memory: written once, then passed as a descriptor and mapped by anybody.

The seals make it safe to map what a stranger made: nobody can change it,
shrink it (reading past the end would kill the reader) or take the seals off.
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from garfield.core.silence import Reason, Silence
from garfield.transport.contract import Payload
from garfield.transport.grpc import wire

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_BLOCK = 512  # bytes; what st_blocks counts, whatever the file system's own are


class Sealed(mmap.mmap):
    """Sealed memory of our own, mapped read-only; its descriptor goes with it."""

    descriptor: int


@contextmanager
def _to_be_sealed() -> Iterator[int]:
    """A descriptor to write to, sealed at the end; closed if anything fails."""
    descriptor = os.memfd_create("garfield", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        yield descriptor
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise


def kept(payload: Payload) -> Payload:
    """A copy in sealed memory, to be published: who asks is given the descriptor, and no copy."""
    view, at = wire.raw(payload), 0
    with _to_be_sealed() as descriptor:
        while at < len(view):
            at += os.write(descriptor, view[at:])
    try:
        memory = Sealed(descriptor, len(view), mmap.MAP_PRIVATE, mmap.PROT_READ)
    except BaseException:
        os.close(descriptor)
        raise
    memory.descriptor = descriptor
    weakref.finalize(memory, os.close, descriptor)
    return np.frombuffer(memory, dtype=payload.dtype)


def descriptor_of(payload: Payload) -> int | None:
    """The descriptor of memory that `kept` made; None for any other."""
    memory = getattr(payload.base, "obj", None)  # numpy holds it by a memoryview
    return memory.descriptor if isinstance(memory, Sealed) else None


async def sealed(payload: Payload) -> int:
    """A descriptor of a sealed copy, made piece by piece: the loop has others to look after."""
    view, at = wire.raw(payload), 0
    with _to_be_sealed() as descriptor:
        while at < len(view):
            at += os.write(descriptor, view[at : at + wire.CHUNK])
            await asyncio.sleep(0)
    return descriptor


def _unsafe(detail: str) -> wire.WireError:
    return wire.WireError(Silence(Reason.UNSAFE_MEMORY, detail))


def mapped(descriptor: int, length: int, dtype: npt.DTypeLike = np.float32) -> Payload:
    """The vector behind a descriptor that somebody sent, read-only, without a copy.

    It must be sealed, of the length asked for, and all there: a hole would be filled, or fail,
    when it is read. The descriptor remains the caller's to close.
    """
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        raise _unsafe("sent a descriptor that is no sealed memory") from None
    if seals & _SEALS != _SEALS:
        raise _unsafe("sent memory that it could still change")
    found, total = os.fstat(descriptor), length * np.dtype(dtype).itemsize
    if found.st_size != total:
        raise wire.wrong_size(f"sent {found.st_size} of {total} bytes")
    if found.st_blocks * _BLOCK < found.st_size:
        raise _unsafe("sent memory with holes")
    memory = mmap.mmap(descriptor, found.st_size, mmap.MAP_PRIVATE, mmap.PROT_READ)
    return np.frombuffer(memory, dtype=dtype)
