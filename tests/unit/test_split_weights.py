"""Weights that travel: the same bytes for the same weights, and nothing believed of a file."""

import json
import mmap
import struct
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load as load_by_library
from torch import nn

from garfield.core.errors import InputError, ObjectDamaged, ObjectMissing
from garfield.split.models import empty_prefix, load
from garfield.split.models.cutting import Piece, layer
from garfield.split.models.weights import (
    load_weights,
    pack_weights,
    put_weights,
    read_weights,
    weights_bytes,
    weights_hash,
    weights_name,
)


class MemoryStore:
    """A store in a dictionary."""

    def __init__(self):
        self.objects = {}

    def size(self, name):
        if name not in self.objects:
            raise ObjectMissing(name)
        return len(self.objects[name])

    def put(self, name, data):
        self.objects[name] = data


def small(seed=0):
    torch.manual_seed(seed)
    return Piece([layer("conv", nn.Conv2d(3, 4, 3)), layer("norm", nn.BatchNorm2d(4))])


def file_of(header, payload=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + payload


def entry(shape, place, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": place}


def test_a_server_s_empty_prefix_becomes_the_client_s():
    client = load("resnet18", seed=7).prefix(6)
    data = pack_weights(client)
    server = empty_prefix("resnet18", 6)
    load_weights(server, data, weights_hash(data))
    batch = torch.randn(2, 3, 64, 64)
    assert torch.equal(server(batch), client(batch))
    assert not any(each.requires_grad for each in server.parameters())


def test_the_library_reads_the_same():
    data = pack_weights(small())
    ours, theirs = read_weights(data), load_by_library(data)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_the_same_weights_give_the_same_bytes_and_others_do_not():
    assert pack_weights(small(1)) == pack_weights(small(1))
    assert weights_hash(pack_weights(small(1))) != weights_hash(pack_weights(small(2)))
    assert len(pack_weights(small())) <= weights_bytes(small())


def test_channels_last_weights_travel_as_well_as_any():
    piece = small()
    packed = pack_weights(piece)
    assert pack_weights(piece.to(memory_format=torch.channels_last)) == packed


def test_weights_are_put_once_and_bytes_counted():
    store, piece = MemoryStore(), small()
    first = put_weights(store, piece)
    assert first.bytes_sent == len(store.objects[first.name])
    assert first.name == f".garfield/weights/{first.hash}.safetensors"
    again = put_weights(store, piece)
    assert (again.hash, again.bytes_sent) == (first.hash, 0)
    store.objects[first.name] = store.objects[first.name][:-1]  # an upload that was cut short
    assert put_weights(store, piece).bytes_sent == first.bytes_sent


def test_one_file_of_all_frozen_layers_serves_every_split():
    client = load("resnet18", seed=3)
    data = pack_weights(client.prefix(client.max_split()))
    for split in (1, 5, 12):
        server = empty_prefix("resnet18", split)
        load_weights(server, data, weights_hash(data))
        kept = client.prefix(split).state_dict()
        assert all(torch.equal(value, kept[key]) for key, value in server.state_dict().items())


def test_a_piece_with_memory_of_its_own_gets_copies():
    piece, donor = small(1), small(2)
    data = bytearray(pack_weights(donor))
    load_weights(piece, data)
    expected = donor.state_dict()["conv.weight"].clone()
    data[-200:] = bytes(200)
    assert torch.equal(piece.state_dict()["conv.weight"], expected)
    piece.conv.weight.sum().backward()  # and may still be trained


def test_weights_may_be_mapped_from_a_file(tmp_path):
    path = tmp_path / "weights"
    data = pack_weights(load("resnet18", seed=1).prefix(3))
    path.write_bytes(data)
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    server = empty_prefix("resnet18", 3)
    load_weights(server, mapped, weights_hash(data))
    assert torch.isfinite(server(torch.randn(1, 3, 32, 32))).all()


def test_altered_weights_are_refused_by_name():
    data = bytearray(pack_weights(small()))
    digest = weights_hash(data)
    data[-1] ^= 1
    piece = small(5)
    before = pack_weights(piece)
    with pytest.raises(ObjectDamaged, match=f"{digest}.safetensors was altered"):
        load_weights(piece, data, digest)
    assert pack_weights(piece) == before


def test_weights_of_other_layers_are_refused():
    other = Piece([layer("conv", nn.Conv2d(3, 5, 3)), layer("norm", nn.BatchNorm2d(5))])
    with pytest.raises(ObjectDamaged, match=r"conv.weight as float32 \(5, 3, 3, 3\).*need"):
        load_weights(small(), pack_weights(other))
    with pytest.raises(ObjectDamaged, match="lack norm"):
        load_weights(small(), pack_weights(Piece([layer("conv", nn.Conv2d(3, 4, 3))])))
    with pytest.raises(ObjectDamaged, match="as float64"):
        load_weights(small(), pack_weights(small().double()))


@pytest.mark.parametrize("digest", ["", "../x", "A" * 64, "0" * 63, "0" * 64 + "/", None, 5])
def test_names_come_from_hashes_alone(digest):
    with pytest.raises(InputError, match="64 hexadecimal"):
        weights_name(digest)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "8 bytes"),
        (b"\xff" * 8, "header would have"),
        (struct.pack("<Q", 1 << 40) + b"{}", "header would have"),
        (file_of(b"[" * 100_000), "JSON"),
        (file_of(b"\xff\xfe{}"), "JSON"),
        (file_of([]), "not a JSON object"),
        (file_of(b'{"a": 1, "a": 2}'), "twice"),
        (file_of({"a": 1}), "not described"),
        (file_of({"a": entry([1], [0, 4], "F8")}, bytes(4)), "type F8"),
        (file_of({"a": entry([1], [0, 4], ["F32"])}, bytes(4)), "type"),
        (file_of({"a": entry([-1], [0, 4])}, bytes(4)), "cannot be"),
        (file_of({"a": entry([1.0], [0, 4])}, bytes(4)), "cannot be"),
        (file_of({"a": entry([True], [0, 4])}, bytes(4)), "cannot be"),
        (file_of({"a": entry([1] * 9, [0, 4])}, bytes(4)), "cannot be"),
        (file_of({"a": entry([1], [0])}, bytes(4)), "cannot be"),
        (file_of({"a": entry([2], [0, 4])}, bytes(4)), "needs 8 bytes"),
        (file_of({"a": entry([2], [0, 8])}, bytes(4)), "of 4"),
        (file_of({"a": entry([1], [4, 8])}, bytes(8)), "begins at byte 4"),
        (file_of({"a": entry([1], [0, 4]), "b": entry([1], [0, 4])}, bytes(4)), "begins at"),
        (file_of({"a": entry([1], [0, 4])}, bytes(5)), "end at byte 4"),
        (file_of({}, b"x"), "end at byte 0"),
    ],
)
def test_files_that_are_not_sound_are_refused(data, said):
    with pytest.raises(ObjectDamaged, match=said):
        read_weights(data)


def test_empty_tensors_and_scalars_are_weights_too():
    found = read_weights(file_of({"a": entry([0, 3], [0, 0]), "b": entry([], [0, 4])}, bytes(4)))
    assert found["a"].shape == (0, 3)
    assert found["b"].item() == 0.0


@given(st.binary(max_size=200))
def test_nonsense_is_refused_or_read_and_nothing_else(data):
    with suppress(ObjectDamaged):
        read_weights(data)


@pytest.mark.slow
@given(st.data())
def test_a_sound_file_changed_in_one_place_is_refused_or_read(data):
    sound = bytearray(pack_weights(small()))
    place = data.draw(st.integers(0, 700))
    sound[place] = data.draw(st.integers(0, 255))
    with suppress(ObjectDamaged):
        load_weights(small(), sound)
