"""WebDataset's tar shards, read in place: `0001.jpg` beside `0001.cls` is one sample.

A sample's key is a member's path up to the first dot of its last part; what follows is the
field. Read are one image (`jpg`, `jpeg` or `png`) and one label: `cls` holds a whole number in
ASCII, `json` an object with one under `label`, `cls` or `class`.

The tar format is walked here and not by Python's tarfile: a member of negative size keeps
tarfile of many Python versions in an endless loop (CVE-2025-8194), and a shard may come from
anybody. POSIX ustar, GNU long names and pax paths are understood, which is what WebDataset's
own writer, tarfile and GNU tar write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from garfield.core.errors import InputError, ObjectDamaged
from garfield.split.objects.format import MAX_IMAGES, MAX_LABEL, Images, decode_image

_BLOCK = 512
_FORMATS = {"jpg": ("JPEG",), "jpeg": ("JPEG",), "png": ("PNG",)}
_LABEL_KEYS = ("label", "cls", "class")
MAX_MEMBERS = 4 * MAX_IMAGES
MAX_NAME = 4096
MAX_LABEL_BYTES = 64 << 10
"""Of one `cls` or `json` member."""


@dataclass(frozen=True)
class Member:
    """A file in a tar archive: its name, and where its bytes are."""

    name: str
    begin: int
    size: int


@dataclass(frozen=True)
class _Sample:
    key: str
    image: Member
    formats: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class TarShard:
    """A shard of which every sample was found, in the order of the archive."""

    name: str
    samples: tuple[_Sample, ...] = field(repr=False)
    data: memoryview = field(repr=False)

    @property
    def count(self) -> int:
        return len(self.samples)

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        return np.asarray([sample.label for sample in self.samples], np.int64)

    @property
    def stored_bytes_per_image(self) -> float:
        """What one sample takes in the store, tar's own blocks included."""
        return len(self.data) / self.count

    def images(self, indices: Sequence[int] | None = None) -> Images:
        """Some images, or all, each uint8 (height, width, 3)."""
        chosen = range(self.count) if indices is None else indices
        for index in chosen:
            if not 0 <= index < self.count:
                raise InputError(f"{self.name} holds images 0..{self.count - 1}, not {index}.")
        return [self._decoded(self.samples[index]) for index in chosen]

    def _decoded(self, sample: _Sample) -> npt.NDArray[np.uint8]:
        begin, size = sample.image.begin, sample.image.size
        content = self.data[begin : begin + size]
        return decode_image(content, sample.formats, f"{self.name}, {sample.image.name}")

    @classmethod
    def parse(cls, data: bytes | bytearray | memoryview, name: str = "shard.tar") -> TarShard:
        """Find all samples; ObjectDamaged, by its name and with numbers, if that cannot be."""
        view = memoryview(data)
        fields: dict[str, dict[str, Member]] = {}
        for member in members(view, name):
            key, extension = _split_name(member.name)
            if extension:
                fields.setdefault(key, {})[extension] = member
        samples = [_sample(key, held, view, name) for key, held in fields.items()]
        found = tuple(sample for sample in samples if sample is not None)
        if not 0 < len(found) <= MAX_IMAGES:
            raise ObjectDamaged(
                f"{name} holds {len(found)} samples; a shard has 1..{MAX_IMAGES}, each an image "
                f"({', '.join(_FORMATS)}) beside a label (cls or json)."
            )
        return cls(name, found, view)


def members(data: memoryview, name: str) -> Iterator[Member]:
    """The regular files of a tar archive, one after the other."""
    at, seen, long_name = 0, 0, ""
    while at + _BLOCK <= len(data):
        header = bytes(data[at : at + _BLOCK])
        if not any(header):
            return  # the archive's end
        seen += 1
        if seen > MAX_MEMBERS:
            raise ObjectDamaged(f"{name} has more than {MAX_MEMBERS} members.")
        size = _checked(header, name, at)
        begin = at + _BLOCK
        if begin + size > len(data):
            raise ObjectDamaged(
                f"{name} is cut short: a member at {at} of {size} bytes does not fit into "
                f"{len(data)}."
            )
        kind = header[156:157]
        if kind in (b"L", b"x", b"g"):
            if size > MAX_NAME * 16:
                raise ObjectDamaged(f"{name} has a name of {size} bytes at {at}.")
            told = bytes(data[begin : begin + size])
            if kind == b"L":
                long_name = _text(told.rstrip(b"\0"))
            elif kind == b"x":
                long_name = _pax_path(told, name, at) or long_name
        else:
            if kind in (b"0", b"\0", b"7"):
                yield Member(long_name or _ustar_name(header), begin, size)
            long_name = ""
        at = begin + -(-size // _BLOCK) * _BLOCK
    raise ObjectDamaged(f"{name} is cut short: it has {len(data)} bytes and no end of archive.")


def _checked(header: bytes, name: str, at: int) -> int:
    """The size that a header tells, once its checksum was found right."""
    told = _number(header[148:156], name, at)
    right = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    if told != right:
        raise ObjectDamaged(f"{name} was altered: the tar header at {at} sums to {right}.")
    return _number(header[124:136], name, at)


def _number(raw: bytes, name: str, at: int) -> int:
    if raw[0] & 0x80:  # base 256, for what octal digits cannot tell; negative if 0xff
        value = int.from_bytes(raw[1:], "big") if raw[0] == 0x80 else -1
    else:
        digits = raw.strip(b" \0")
        value = int(digits or b"0", 8) if all(each in b"01234567" for each in digits) else -1
    if not 0 <= value < 2**62:
        raise ObjectDamaged(f"{name}: the tar header at {at} has no number in {raw!r}.")
    return value


def _pax_path(told: bytes, name: str, at: int) -> str:
    """The path in a pax header of lines `length key=value\\n`; empty if it has none."""
    path = ""
    while told:
        digits, _, _ = told.partition(b" ")
        length = int(digits) if digits.isdigit() and len(digits) < 8 else 0
        line = told[:length]
        if length < 5 or not line.endswith(b"\n"):
            raise ObjectDamaged(f"{name}: the pax header at {at} cannot be read.")
        key, _, value = line[len(digits) + 1 : -1].partition(b"=")
        if key == b"path":
            path = _text(value)
        elif key == b"size":
            raise ObjectDamaged(f"{name} has a member of more than 8 GB at {at}.")
        told = told[length:]
    return path


def _ustar_name(header: bytes) -> str:
    own = header[:100].partition(b"\0")[0]
    if header[257:262] == b"ustar" and header[345] and header[257:265] != b"ustar  \0":
        return _text(header[345:500].partition(b"\0")[0] + b"/" + own)
    return _text(own)


def _text(raw: bytes) -> str:
    return raw[:MAX_NAME].decode("utf-8", "replace")


def _split_name(name: str) -> tuple[str, str]:
    """Key and field: `a/b.seg.png` is `a/b` and `seg.png`; hidden files have none."""
    folder, slash, last = name.rpartition("/")
    stem, _, extension = last.partition(".")
    return (folder + slash + stem, extension.lower()) if stem else (name, "")


def _sample(key: str, held: dict[str, Member], data: memoryview, name: str) -> _Sample | None:
    """A sample, or None for members that are no image, like a `README.txt` among them."""
    extension = next((each for each in _FORMATS if each in held), None)
    if extension is None:
        return None
    label = _label(held, data)
    if label is None:
        raise ObjectDamaged(
            f"{name}: {key}.{extension} has no label within 0..{MAX_LABEL} in a cls or json beside."
        )
    return _Sample(key, held[extension], _FORMATS[extension], label)


def _label(held: dict[str, Member], data: memoryview) -> int | None:
    if "cls" in held:
        told = _content(held["cls"], data).strip()
        value: Any = int(told) if told.isdigit() and len(told) < 11 else None
    elif "json" in held:
        try:
            value = json.loads(_content(held["json"], data))
        except (ValueError, RecursionError):
            return None
        if isinstance(value, dict):
            value = next((value[each] for each in _LABEL_KEYS if each in value), None)
    else:
        return None
    return value if type(value) is int and 0 <= value <= MAX_LABEL else None


def _content(member: Member, data: memoryview) -> bytes:
    return bytes(data[member.begin : member.begin + min(member.size, MAX_LABEL_BYTES)])
