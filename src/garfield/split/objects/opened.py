"""One way to open an object of the store, whatever its format."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from garfield.core.errors import ObjectDamaged
from garfield.split.objects.format import Images, PackedObject
from garfield.split.objects.webdataset import TarShard


class StoredObject(Protocol):
    """Images with labels, as any object of the store gives them."""

    @property
    def name(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def labels(self) -> npt.NDArray[np.int64]: ...
    @property
    def stored_bytes_per_image(self) -> float: ...
    def images(self, indices: Sequence[int] | None = None) -> Images: ...


def open_object(
    name: str, data: bytes | bytearray | memoryview, sha256: str | None = None
) -> StoredObject:
    """Open a packed object, or a tar shard if its name ends so.

    `sha256` is what the index says of the whole object; ObjectDamaged if it is not that.
    """
    if sha256 is not None and (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise ObjectDamaged(
            f"{name} was altered: it hashes to {found[:16]}…, the index says {sha256[:16]}…."
        )
    if name.endswith(".tar"):
        return TarShard.parse(data, name)
    return PackedObject.parse(data, name, hashed=sha256 is not None)
