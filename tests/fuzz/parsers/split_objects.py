"""Objects of a store, indexes, rights and transforms, as anybody may have written them."""

from __future__ import annotations

import io
import tarfile

import numpy as np

from garfield.core.errors import AccessDenied, ConfigError, GarfieldError, ObjectDamaged
from garfield.split.objects import Index, ObjectEntry, PackedObject, TarShard, pack
from garfield.split.objects.format import encode_jpeg
from garfield.split.stores import Access
from garfield.split.transforms import Transforms
from tests.fuzz.target import fuzzed

PIXELS = [np.full((2, 3, 3), each, np.uint8) for each in (0, 200)]


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in (("1.jpg", encode_jpeg(PIXELS[0])), ("1.cls", b"1")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


@fuzzed(
    "split object", begin_from=[pack(PIXELS, [1, 2], kind) for kind in ("jpeg", "uint8", "float32")]
)
def split_object(data: bytes) -> None:
    """One is refused, or all of its images can be had; nothing else comes of it."""
    try:
        packed = PackedObject.parse(data)
        images = packed.images()
    except ObjectDamaged as refused:
        assert len(str(refused)) < 1000
        return
    assert len(images) == packed.count == len(packed.labels)
    assert sum(image.nbytes for image in images) < 1 << 24


@fuzzed("split shard", begin_from=[_tar()])
def split_shard(data: bytes) -> None:
    """One is refused, or every sample has an image or is refused by its name."""
    try:
        shard = TarShard.parse(data)
        images = shard.images()
    except ObjectDamaged as refused:
        assert len(str(refused)) < 6000
        return
    assert len(images) == shard.count == len(shard.labels)


@fuzzed(
    "split index",
    begin_from=[Index("jpeg", ("a",), (ObjectEntry("p", 2, 9, "a" * 64),)).to_json().encode()],
)
def split_index(data: bytes) -> None:
    """One is refused, or can be written again and is the same."""
    try:
        index = Index.from_json(data)
    except ObjectDamaged:
        return
    assert Index.from_json(index.to_json()) == index
    assert index.total > 0


@fuzzed(
    "split rights",
    begin_from=[
        Access("swift", token="AUTH_tk0", account="/v1/AUTH_a").as_header().encode(),
        Access("s3", reads={"a": "https://h/b/a?X-Amz-Signature=1"}).as_header().encode(),
    ],
)
def split_rights(data: bytes) -> None:
    """One is refused with 401, or cannot begin another header."""
    try:
        access = Access.from_header(data.decode("latin-1"))
    except AccessDenied as refused:
        assert refused.status == 401
        return
    assert (access.token + access.account).isascii()
    assert "\n" not in access.token + access.account
    assert ".." not in access.account


@fuzzed(
    "split transforms",
    begin_from=[
        b"resize(9), crop(8), flip, normalise(half)",
        Transforms.parse("random-resized-crop(8, 0.5), contrast").to_json().encode(),
    ],
)
def split_transforms(data: bytes) -> None:
    """One is refused, or does something bounded to an image, or refuses that image."""
    for read in (Transforms.parse, Transforms.from_json):
        try:
            transforms = read(data.decode("latin-1"))
        except ConfigError:
            continue
        assert Transforms.from_json(transforms.to_json()) == transforms
        try:
            done = transforms.apply([np.zeros((9, 9, 3), np.uint8)], [0], 0, 0)
        except GarfieldError:
            continue
        assert done.numel() <= 3 * 1200**2
