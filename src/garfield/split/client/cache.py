"""Features kept on the client's disk, so that later epochs need not ask for them again.

    <key>.npy     (samples of the object, …): a row per sample, unset until it was received
    <key>.json    which rows are there, with the label and the CRC-32 of each

The key is the SHA-256 of all that a feature depends on: the object and its hash, the layers
and their weights, the split, the transforms, and, where these are random, which variant it is.
Rows are on the disk before they are said to be there; a row whose checksum is wrong counts as
absent. Several ranks may share one directory.

What was kept is not thereby permitted: `CachedSource` asks the store about the object, with
the user's own token, before it hands over anything of it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from garfield.core.errors import ConfigError
from garfield.core.files import as_json, write_json

Array = npt.NDArray[Any]


def key_of(parts: Mapping[str, Any]) -> str:
    """The name under which features that depend on these are kept."""
    return hashlib.sha256(as_json(dict(sorted(parts.items()))).encode()).hexdigest()


class FeatureCache:
    """Features by key and sample, in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.problem: str | None = None
        """Why nothing more is kept, if that is so: a training goes on without its cache."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise ConfigError(f"{directory} cannot be used as cache: {problem.strerror}.") from None

    def read(self, key: str, indices: Sequence[int]) -> dict[int, tuple[Array, int]]:
        """The features and labels of those samples that are there, by index."""
        known = self._known(key)
        wanted = [index for index in indices if index in known]
        if not wanted:
            return {}
        try:
            rows = np.load(self._rows(key), mmap_mode="r", allow_pickle=False)
            found = {index: np.array(rows[index]) for index in wanted}
        except (OSError, ValueError, IndexError):
            return {}
        whole = (index for index in wanted if _checksum(found[index]) == known[index][1])
        return {index: (found[index], known[index][0]) for index in whole}

    def write(
        self, key: str, count: int, indices: Sequence[int], rows: Array, labels: Sequence[int]
    ) -> None:
        """Keep the features of some of an object's `count` samples."""
        if self.problem is not None:
            return
        try:
            with self._locked(key):
                self._merge(key, count, indices, rows, labels)
        except OSError as problem:
            self.problem = f"{self.directory} cannot be written to: {problem.strerror or problem}."

    def _merge(
        self, key: str, count: int, indices: Sequence[int], rows: Array, labels: Sequence[int]
    ) -> None:
        path = self._rows(key)
        shape = (count, *rows.shape[1:])
        known = self._known(key)
        if not path.exists():
            known = {}
            np.lib.format.open_memmap(path, mode="w+", dtype=rows.dtype, shape=shape).flush()
        kept = np.lib.format.open_memmap(path, mode="r+")
        if kept.shape != shape or kept.dtype != rows.dtype:
            raise OSError(f"{path.name} holds {kept.dtype} {kept.shape}, not {rows.dtype} {shape}")
        kept[list(indices)] = rows
        kept.flush()
        for index, row, label in zip(indices, rows, labels, strict=True):
            known[int(index)] = (int(label), _checksum(row))
        write_json(self._there(key), known)

    def _known(self, key: str) -> dict[int, tuple[int, int]]:
        """(label, checksum) of each row that is there."""
        try:
            told = json.loads(self._there(key).read_text(encoding="utf-8"))
            return {int(index): (int(label), int(crc)) for index, (label, crc) in told.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _rows(self, key: str) -> Path:
        return self.directory / f"{key}.npy"

    def _there(self, key: str) -> Path:
        return self.directory / f"{key}.json"

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        with (self.directory / f"{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _checksum(row: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(row).data)
