"""Features as objects of a store: named by what they depend on, and refused if altered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from garfield.core.errors import ObjectDamaged, RequestRefused
from garfield.split.feature_objects import (
    features_folder,
    features_name,
    open_features,
    pack_features,
)
from garfield.split.transforms import Transforms
from garfield.split.wire import ExtractRequest

CALM = Transforms.parse("resize(40), crop(32), normalise(imagenet)").to_json()
RANDOM = Transforms.parse("resize(40), random-crop(32), normalise(imagenet)").to_json()
ASKED = ExtractRequest(
    "s3://photos/train",
    "part-3",
    7,
    model="resnet18",
    weights="ab" * 32,
    sha256="cd" * 32,
    samples=(0, 1, 2, 3),
    transforms=CALM,
    first_sample_id=40,
    seed=5,
    epoch=1,
)
LABELS = (3, 1, 4, 1)


def features(dtype="float32"):
    return np.arange(24).reshape(4, 2, 3).astype(dtype)


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": "ba" * 32},
        {"sha256": "dc" * 32},
        {"split": 8},
        {"transforms": RANDOM},
        {"dtype": "float16"},
        {"model": None, "graph": "{}"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_whatever_features_depend_on_gives_them_another_name(changes):
    assert features_name(replace(ASKED, **changes)) != features_name(ASKED)


@pytest.mark.parametrize("changes", [{"seed": 6}, {"epoch": 2}, {"first_sample_id": 41}])
def test_seed_variant_and_place_count_where_transforms_are_random(changes):
    assert features_name(replace(ASKED, **changes)) == features_name(ASKED)
    drawn = replace(ASKED, transforms=RANDOM)
    assert features_name(replace(drawn, **changes)) != features_name(drawn)


@pytest.mark.parametrize("changes", [{"object_name": "part-4"}, {"batch": 9}, {"samples": (0,)}])
def test_what_features_do_not_depend_on_does_not_change_their_name(changes):
    assert features_name(replace(ASKED, **changes)) == features_name(ASKED)


def test_features_of_a_data_set_share_a_folder():
    other = replace(ASKED, sha256="ee" * 32, first_sample_id=0)
    assert features_folder(other) == features_folder(ASKED)
    assert features_name(other).startswith(features_folder(ASKED) + "/")


@pytest.mark.parametrize("changes", [{"weights": None}, {"sha256": None}, {"split": 0}])
def test_what_has_no_hash_is_not_kept(changes):
    with pytest.raises(RequestRefused) as caught:
        features_name(replace(ASKED, **changes))
    assert caught.value.status == 400


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_what_was_kept_is_found_again(dtype, compression):
    asked = replace(ASKED, dtype=dtype, compression=compression)
    found = open_features(asked, pack_features(asked, features(dtype), LABELS), (2, 3))
    np.testing.assert_array_equal(found.values, features(dtype))
    assert found.labels == LABELS


def test_a_changed_byte_anywhere_or_a_missing_end_is_refused_by_name():
    packed = pack_features(ASKED, features(), LABELS)
    for at in range(len(packed)):
        altered = bytearray(packed)
        altered[at] ^= 1
        with pytest.raises(ObjectDamaged, match=features_name(ASKED)):
            open_features(ASKED, bytes(altered), (2, 3))
    for length in range(len(packed)):
        with pytest.raises(ObjectDamaged):
            open_features(ASKED, packed[:length], (2, 3))


def test_features_under_anothers_name_are_refused():
    of_another = pack_features(replace(ASKED, split=8), features(), LABELS)
    with pytest.raises(ObjectDamaged):
        open_features(ASKED, of_another, (2, 3))


def test_sound_frames_around_altered_features_are_refused():
    """A checksum in every frame can be made again; the hash of the whole then is another."""
    from garfield.split.wire import decode_features, encode_features

    told = decode_features([pack_features(ASKED, features(), LABELS)])
    forged = b"".join(encode_features(features() + 1, LABELS, told.trailer))
    relabelled = b"".join(encode_features(features(), LABELS[::-1], told.trailer))
    for each in (forged, relabelled):
        with pytest.raises(ObjectDamaged, match="hash"):
            open_features(ASKED, each, (2, 3))
