"""The index of a data set: which objects hold it, how many images each, and their hashes.

It is one object, `index.json`, beside those that it names. A sample's id is its running number
over the objects in the order of the index, so that it stays the same whoever reads, and in
which order.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from garfield.core.errors import InputError, ObjectDamaged, ObjectMissing
from garfield.core.files import as_json
from garfield.split.objects.format import MAX_IMAGES, Kind
from garfield.split.objects.webdataset import TarShard

if TYPE_CHECKING:
    from garfield.split.stores.contract import Store

INDEX_NAME = "index.json"
FORMAT = "garfield-split-index"
VERSION = 1
MAX_BYTES = 64 << 20
MAX_OBJECTS = 1_000_000
MAX_CLASSES = 100_000
WEBDATASET = "webdataset"
"""The kind of an index over tar shards."""

_HASH = re.compile(r"[0-9a-f]{64}")
_KINDS = (*(kind.value for kind in Kind), WEBDATASET)


@dataclass(frozen=True)
class ObjectEntry:
    """One object of the data set."""

    name: str
    count: int
    bytes: int
    sha256: str
    """Of the whole object."""


@dataclass(frozen=True)
class Index:
    """All objects of a data set, in the order that gives samples their ids."""

    kind: str
    """jpeg, uint8, float32, or webdataset."""
    classes: tuple[str, ...]
    """Names by label; empty if nobody has told them."""
    objects: tuple[ObjectEntry, ...]

    @property
    def total(self) -> int:
        """Images in all objects."""
        return sum(entry.count for entry in self.objects)

    @property
    def first_ids(self) -> tuple[int, ...]:
        """The id of each object's first sample."""
        return (0, *itertools.accumulate(entry.count for entry in self.objects))[:-1]

    @property
    def stored_bytes_per_image(self) -> float:
        """What one image takes in the store, on average."""
        return sum(entry.bytes for entry in self.objects) / self.total

    def to_json(self) -> str:
        return as_json({"format": FORMAT, "version": VERSION, **vars(self)}, indent=1)

    @classmethod
    def from_json(cls, text: bytes | str, name: str = INDEX_NAME) -> Index:
        """Read an index; ObjectDamaged if it is none."""
        if len(text) > MAX_BYTES:
            raise ObjectDamaged(f"{name} has {len(text)} bytes; at most {MAX_BYTES} are read.")
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError):
            raise ObjectDamaged(f"{name} is no JSON.") from None
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise ObjectDamaged(f"{name} is not an index of garfield.split.")
        if raw.get("version") != VERSION:
            version = str(raw.get("version"))[:20]
            raise ObjectDamaged(f"{name} is of version {version}; this library reads {VERSION}.")
        return cls.parsed(raw.get("kind"), raw.get("classes"), raw.get("objects"), name)

    @classmethod
    def parsed(cls, kind: Any, classes: Any, objects: Any, name: str) -> Index:
        """An index of values as JSON has them, once they were found sound."""
        if kind not in _KINDS:
            raise ObjectDamaged(f"{name}: kind must be one of {', '.join(_KINDS)}.")
        if (
            not isinstance(classes, list)
            or len(classes) > MAX_CLASSES
            or not all(isinstance(each, str) for each in classes)
        ):
            raise ObjectDamaged(f"{name}: classes must be a list of at most {MAX_CLASSES} names.")
        if not isinstance(objects, list) or not 0 < len(objects) <= MAX_OBJECTS:
            raise ObjectDamaged(f"{name}: objects must be a list of 1..{MAX_OBJECTS} objects.")
        entries = tuple(_entry(each, name, at) for at, each in enumerate(objects))
        if len({entry.name for entry in entries}) < len(entries):
            raise ObjectDamaged(f"{name} names an object twice.")
        return cls(str(kind), tuple(classes), entries)


def read_index(
    store: Store, *, progress: Callable[[int, int], None] = lambda done, total: None
) -> Index:
    """The index of a data set; tar shards without one are read once to make it.

    `progress` is called with the shards read so far, and how many there are.
    """
    try:
        return Index.from_json(store.get(INDEX_NAME))
    except ObjectMissing:
        shards = [name for name in store.names() if name.endswith(".tar")]
        if not shards:
            raise ObjectMissing(
                f"{store.url} holds neither {INDEX_NAME} nor tar shards. "
                f"Put a data set there with: garfield split put DIR --to {store.url}"
            ) from None
    entries = []
    for done, name in enumerate(shards):
        progress(done, len(shards))
        data = store.get(name)
        count = TarShard.parse(data, name).count
        entries.append(ObjectEntry(name, count, len(data), hashlib.sha256(data).hexdigest()))
    progress(len(shards), len(shards))
    return Index(WEBDATASET, (), tuple(entries))


def _entry(raw: Any, index: str, at: int) -> ObjectEntry:
    from garfield.split.stores.contract import check_name

    where = f"{index}: object {at}"
    if not isinstance(raw, dict):
        raise ObjectDamaged(f"{where} is a {type(raw).__name__}.")
    name, count, size, sha256 = (raw.get(key) for key in ("name", "count", "bytes", "sha256"))
    try:
        check_name(name)
    except InputError as problem:
        raise ObjectDamaged(f"{where}: {problem}") from None
    if type(count) is not int or not 0 < count <= MAX_IMAGES:
        raise ObjectDamaged(f"{where}: count must be within 1..{MAX_IMAGES}.")
    if type(size) is not int or not 0 < size < 2**62:
        raise ObjectDamaged(f"{where}: bytes must be a whole number above 0.")
    if not isinstance(sha256, str) or not _HASH.fullmatch(sha256):
        raise ObjectDamaged(f"{where}: sha256 must be 64 hexadecimal digits.")
    return ObjectEntry(str(name), count, size, sha256)
