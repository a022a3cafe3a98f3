"""Packed objects, tar shards and indexes: whole, or refused by name and with numbers."""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import tarfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from garfield.core.errors import InputError, ObjectDamaged, ObjectMissing
from garfield.split.objects import Index, Kind, ObjectEntry, PackedObject, TarShard, open_object
from garfield.split.objects import pack as pack_images
from garfield.split.objects.format import MAGIC, encode_jpeg
from garfield.split.objects.index import read_index
from garfield.split.stores import open_store

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (5, 12, 10, 3), np.uint8)
LABELS = [3, 0, 2, 2, 1]


def with_header(data: bytes, **changes: object) -> bytes:
    """The same object with another header."""
    length = struct.unpack_from("<I", data, 12)[0]
    header = json.loads(data[16 : 16 + length])
    text = json.dumps({**header, **changes}).encode()
    return data[:12] + struct.pack("<I", len(text)) + text + data[16 + length :]


@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_arrays_come_back_bit_for_bit(kind: str) -> None:
    packed = PackedObject.parse(pack_images(list(PIXELS), LABELS, kind))
    assert packed.kind.value == kind
    assert packed.labels.tolist() == LABELS
    got = packed.images([4, 0, 4])
    want = PIXELS[[4, 0, 4]]
    if kind == "float32":
        want = want.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


def test_jpeg_files_are_kept_as_they_are_and_may_differ_in_size() -> None:
    files = [encode_jpeg(PIXELS[0]), encode_jpeg(PIXELS[1][:8, :7]), encode_jpeg(PIXELS[2])]
    packed = PackedObject.parse(pack_images(files, [1, 2, 3], "jpeg"))
    assert [packed.encoded(i) for i in range(3)] == files
    assert [image.shape for image in packed.images()] == [(12, 10, 3), (8, 7, 3), (12, 10, 3)]
    assert packed.stored_bytes_per_image > max(map(len, files)) / 3


def test_stored_sizes_are_what_the_issue_counts_with() -> None:
    images = [RNG.integers(0, 256, (224, 224, 3), np.uint8)] * 4
    uint8 = PackedObject.parse(pack_images(images, [0] * 4, "uint8")).stored_bytes_per_image
    float32 = PackedObject.parse(pack_images(images, [0] * 4, "float32")).stored_bytes_per_image
    assert 150_528 < uint8 < 150_700
    assert 602_112 < float32 < 602_300


@pytest.mark.parametrize("kind", list(Kind))
def test_an_object_cut_anywhere_is_refused_by_its_name(kind: Kind) -> None:
    whole = pack_images(list(PIXELS), LABELS, kind)
    for length in [*range(40), *range(40, len(whole), 97), len(whole) - 1]:
        with pytest.raises(ObjectDamaged, match="part-7"):
            PackedObject.parse(whole[:length], "part-7")
    with pytest.raises(ObjectDamaged, match="part-7"):
        PackedObject.parse(whole + b"x", "part-7")


def test_an_altered_payload_is_refused_by_its_name() -> None:
    whole = bytearray(pack_images(list(PIXELS), LABELS, "uint8"))
    whole[-100] ^= 1
    with pytest.raises(ObjectDamaged, match=r"part-7 was altered"):
        PackedObject.parse(bytes(whole), "part-7")


def test_an_object_that_agrees_with_itself_but_not_with_the_index_is_refused() -> None:
    ours = pack_images(list(PIXELS), LABELS, "uint8")
    theirs = pack_images(list(PIXELS), [0] * 5, "uint8")
    told = hashlib.sha256(ours).hexdigest()
    assert open_object("part-7", ours, told).count == 5
    with pytest.raises(ObjectDamaged, match=r"part-7 was altered.*the index says"):
        open_object("part-7", theirs, told)


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 0}, {"count": 6}, {"count": 2**40}, {"count": True}, {"count": "5"},
        {"labels": [1]}, {"labels": [-1] * 5}, {"labels": [0.5] * 5}, {"labels": {}},
        {"shapes": []}, {"shapes": [[0, 10]]}, {"shapes": [[2**20, 2**20]]}, {"shapes": [[12]]},
        {"shapes": [[12, 11]]}, {"shapes": "12"}, {"offsets": [0]}, {"kind": "pickle"},
        {"kind": "float32"}, {"kind": "jpeg"}, {"kind": None}, {"payload_bytes": 1},
        {"payload_bytes": -1}, {"sha256": "0" * 64}, {"sha256": None}, {"sha256": 5},
    ],
)  # fmt: skip
def test_headers_that_lie_are_refused(changes: dict[str, object]) -> None:
    data = with_header(pack_images(list(PIXELS), LABELS, "uint8"), **changes)
    with pytest.raises(ObjectDamaged):
        PackedObject.parse(data)


@pytest.mark.parametrize(
    "offsets",
    [[0, 5, 4, 9, 10, 11], [1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0], [0, 2**70, 1, 1, 1, 1]],
)
def test_offsets_that_lie_are_refused(offsets: list[int]) -> None:
    data = with_header(pack_images(list(PIXELS), LABELS, "jpeg"), offsets=offsets)
    with pytest.raises(ObjectDamaged):
        PackedObject.parse(data)


def test_an_image_larger_than_its_header_says_is_not_decoded() -> None:
    data = pack_images([encode_jpeg(PIXELS[0])], [1], "jpeg")
    packed = PackedObject.parse(with_header(data, shapes=[[1, 1]]))
    with pytest.raises(ObjectDamaged, match=r"12×10 pixels, its header says 1×1"):
        packed.images()


def test_a_png_in_place_of_a_jpeg_is_not_decoded() -> None:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(PIXELS[0]).save(out, "PNG")
    with pytest.raises(InputError, match="Not a JPEG"):
        pack_images([out.getvalue()], [1], "jpeg")


def test_a_deeply_nested_header_is_refused() -> None:
    text = b"[" * 200_000
    data = MAGIC + struct.pack("<II", 1, len(text)) + text
    with pytest.raises(ObjectDamaged):
        PackedObject.parse(data)


def test_indices_outside_are_refused() -> None:
    packed = PackedObject.parse(pack_images(list(PIXELS), LABELS, "uint8"))
    for wrong in ([5], [-1], [0, 99]):
        with pytest.raises(InputError, match=r"images 0\.\.4"):
            packed.images(wrong)


def test_images_that_cannot_be_packed_are_refused() -> None:
    for images, labels, kind in [
        ([], [], "uint8"),
        ([PIXELS[0]], [1, 2], "uint8"),
        ([PIXELS[0], PIXELS[0][:5]], [1, 2], "uint8"),
        ([PIXELS[0].astype(np.float32)], [1], "uint8"),
        ([PIXELS[0]], [-1], "uint8"),
        ([b"no jpeg"], [1], "jpeg"),
    ]:
        with pytest.raises(InputError):
            pack_images(images, labels, kind)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_single_change_goes_unnoticed(data: st.DataObject) -> None:
    whole = bytearray(pack_images(list(PIXELS), LABELS, "jpeg"))
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = data.draw(st.integers(1, 255))
    whole[at] ^= flipped
    try:
        packed = PackedObject.parse(bytes(whole))
    except ObjectDamaged:
        return
    # the header alone is not hashed: only a label or a shape can have changed, and a shape tells
    assert packed.count == 5
    if packed.labels.tolist() == LABELS:
        with pytest.raises(ObjectDamaged):
            packed.images()


# -- tar shards --------------------------------------------------------------------------------


def tar(members: list[tuple[str, bytes]], tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tar_format) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


JPEG = encode_jpeg(PIXELS[0])


@pytest.mark.parametrize(
    "tar_format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]
)
def test_shards_of_every_writer_are_read_in_place(tar_format: int) -> None:
    long = "n0144/" + "x" * 120 if tar_format != tarfile.USTAR_FORMAT else "d" * 60 + "/" + "x" * 60
    data = tar(
        [
            ("a/0001.jpg", JPEG), ("a/0001.cls", b"7\n"),
            (f"{long}.jpg", JPEG), (f"{long}.json", b'{"label": 3, "more": [1]}'),
            ("README", b"hello"), ("note.txt", b"hello"),
        ],
        tar_format,
    )  # fmt: skip
    shard = TarShard.parse(data, "s.tar")
    assert shard.labels.tolist() == [7, 3]
    assert [image.shape for image in shard.images([1, 0])] == [(12, 10, 3)] * 2
    assert shard.samples[1].key == long
    assert open_object("s.tar", data).count == 2


def test_png_images_are_read_too() -> None:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(PIXELS[0]).save(out, "PNG")
    shard = TarShard.parse(tar([("1.png", out.getvalue()), ("1.cls", b"0")]))
    assert np.array_equal(shard.images()[0], PIXELS[0])


@pytest.mark.parametrize(
    "members",
    [
        [("1.jpg", JPEG)],
        [("1.jpg", JPEG), ("1.cls", b"-1")],
        [("1.jpg", JPEG), ("1.cls", b"x" * 100)],
        [("1.jpg", JPEG), ("1.json", b"{")],
        [("1.jpg", JPEG), ("1.json", b"[" * 60_000)],
        [("1.jpg", JPEG), ("1.json", b'{"label": "cat"}')],
        [("1.cls", b"1")],
        [],
    ],
)
def test_shards_without_labels_are_refused(members: list[tuple[str, bytes]]) -> None:
    with pytest.raises(ObjectDamaged, match=r"s\.tar"):
        TarShard.parse(tar(members), "s.tar")


def test_a_member_that_is_no_image_is_refused_when_it_is_read() -> None:
    shard = TarShard.parse(tar([("1.jpg", b"not an image"), ("1.cls", b"1")]), "s.tar")
    with pytest.raises(ObjectDamaged, match=r"s\.tar, 1\.jpg"):
        shard.images()


def test_a_shard_cut_anywhere_is_refused() -> None:
    whole = tar([("1.jpg", JPEG), ("1.cls", b"1")])
    last = 512 * 3 + -(-len(JPEG) // 512) * 512  # two headers and a block; then comes the end
    for length in range(0, last, 61):
        with pytest.raises(ObjectDamaged):
            TarShard.parse(whole[:length])


def test_negative_and_endless_sizes_do_not_loop() -> None:
    whole = tar([("1.jpg", JPEG), ("1.cls", b"1")])
    for size in (b"\xff" * 12, b"-0000000512\0", b"\x80" + b"\xff" * 11, b"77777777777\0"):
        header = bytearray(whole[:512])
        header[124:136] = size
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        with pytest.raises(ObjectDamaged):
            TarShard.parse(bytes(header) + whole[512:])


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_altered_shards_are_refused_or_read(seed: int, changes: int) -> None:
    rng = random.Random(seed)
    data = bytearray(tar([("1.jpg", JPEG), ("1.cls", b"1"), ("2.jpg", JPEG), ("2.cls", b"2")]))
    for _ in range(changes):
        data[rng.randrange(len(data))] = rng.randrange(256)
    with suppress(ObjectDamaged):
        TarShard.parse(bytes(data)).images()


# -- indexes -----------------------------------------------------------------------------------

ENTRIES = (ObjectEntry("part-0", 100, 1600, "a" * 64), ObjectEntry("part-1", 50, 900, "b" * 64))


def test_an_index_comes_back_and_numbers_samples() -> None:
    index = Index("jpeg", ("cat", "dog"), ENTRIES)
    assert Index.from_json(index.to_json()) == index
    assert index.total == 150
    assert index.first_ids == (0, 100)
    assert index.stored_bytes_per_image == pytest.approx(2500 / 150)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"}, {"version": 2}, {"kind": "pickle"}, {"classes": [1]}, {"classes": None},
        {"objects": []}, {"objects": {}}, {"objects": [5]}, {"objects": [{"name": "../x"}]},
    ],
)  # fmt: skip
def test_indexes_that_lie_are_refused(change: dict[str, object]) -> None:
    raw = json.loads(Index("jpeg", (), ENTRIES).to_json())
    with pytest.raises(ObjectDamaged):
        Index.from_json(json.dumps({**raw, **change}))


@pytest.mark.parametrize(
    "change",
    [{"name": "/etc/passwd"}, {"name": 5}, {"count": 0}, {"count": True}, {"bytes": -1},
     {"sha256": "x"}, {"name": "part-1"}],
)  # fmt: skip
def test_entries_that_lie_are_refused(change: dict[str, object]) -> None:
    raw = json.loads(Index("jpeg", (), ENTRIES).to_json())
    raw["objects"][0].update(change)
    with pytest.raises(ObjectDamaged):
        Index.from_json(json.dumps(raw))


def test_tar_shards_without_an_index_are_counted_once(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    with pytest.raises(ObjectMissing, match="garfield split put"):
        read_index(store)
    for number, count in enumerate((2, 3)):
        members = [(f"{i}.{e}", c) for i in range(count) for e, c in (("jpg", JPEG), ("cls", b"1"))]
        store.put(f"train-{number:04d}.tar", tar(members))
    index = read_index(store)
    assert index.kind == "webdataset"
    assert [entry.count for entry in index.objects] == [2, 3]
    assert index.first_ids == (0, 2)
