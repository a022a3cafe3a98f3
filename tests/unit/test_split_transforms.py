"""Transforms: the same pixels for the same (seed, epoch, sample), whatever else is in a batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from garfield.core.errors import ConfigError, GarfieldError, InputError, UnknownName
from garfield.split.objects import PackedObject, pack
from garfield.split.transforms import Transforms

RNG = np.random.default_rng(0)
IMAGES = [RNG.integers(0, 256, (40 + i, 50 - i, 3), np.uint8) for i in range(6)]
EVERYTHING = (
    "resize(36), random-crop(32, 2), random-resized-crop(24, 0.3), flip, brightness(0.2), "
    "contrast(0.3), resize(20, 22), crop(18, 16), normalise(imagenet)"
)


def test_the_usual_list_is_read_and_written() -> None:
    transforms = Transforms.parse("resize(256), crop(224), flip, normalise(imagenet)")
    assert str(transforms) == "resize(256), crop(224), flip, normalise(imagenet)"
    assert Transforms.from_json(transforms.to_json()) == transforms
    assert Transforms.parse(str(transforms)) == transforms
    assert transforms.out_shape == (3, 224, 224)
    assert transforms.is_random
    assert not Transforms.parse("resize(256), crop(224)").is_random
    assert Transforms.parse("").out_shape is None
    assert Transforms.parse("crop(3), resize(4)").out_shape == (3, 3, 3)


def test_pixels_depend_on_seed_epoch_and_sample_alone() -> None:
    transforms = Transforms.parse(EVERYTHING)
    whole = transforms.apply(IMAGES, range(6), seed=7, epoch=2)
    assert whole.shape == (6, 3, 18, 16)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            for at in reversed(range(6)):
                alone = transforms.apply(IMAGES[at : at + 1], [at], seed=7, epoch=2)
                assert torch.equal(alone[0], whole[at])
    finally:
        torch.set_num_threads(threads)
    for other in (
        transforms.apply(IMAGES, range(6), seed=8, epoch=2),
        transforms.apply(IMAGES, range(6), seed=7, epoch=3),
        transforms.apply(IMAGES, range(6, 12), seed=7, epoch=2),
    ):
        assert not torch.equal(other, whole)


def test_chance_is_the_same_on_every_machine() -> None:
    flips = Transforms.parse("flip")
    ramp = np.zeros((1, 2, 3), np.uint8)
    ramp[0, 1] = 255
    flipped = [bool(flips.apply([ramp], [i], seed=1, epoch=0)[0, 0, 0, 0]) for i in range(16)]
    assert "".join("01"[each] for each in flipped) == "1000010011110100"


def test_flips_are_as_frequent_as_asked() -> None:
    ramp = np.zeros((1, 2, 3), np.uint8)
    ramp[0, 1] = 255
    for share in (0.0, 0.25, 1.0):
        transforms = Transforms.parse(f"flip({share})")
        done = transforms.apply([ramp] * 2000, range(2000), seed=0, epoch=0)[:, 0, 0, 0]
        assert abs(float(done.mean()) - share) < 0.04


def test_crops_reach_every_corner() -> None:
    image = np.arange(25, dtype=np.uint8).reshape(5, 5, 1).repeat(3, 2)
    transforms = Transforms.parse("random-crop(3)")
    done = transforms.apply([image] * 200, range(200), seed=0, epoch=0)
    corners = {round(float(each[0, 0, 0]) * 255) for each in done}
    assert corners == {row * 5 + column for row in range(3) for column in range(3)}


def test_uint8_and_float32_objects_give_the_same_pixels() -> None:
    images = [RNG.integers(0, 256, (40, 40, 3), np.uint8) for _ in range(3)]
    transforms = Transforms.parse(EVERYTHING)
    results = [
        transforms.apply(PackedObject.parse(pack(images, [0] * 3, kind)).images(), range(3), 1, 1)
        for kind in ("uint8", "float32")
    ]
    assert torch.equal(*results)


def test_a_crop_takes_the_middle_and_normalising_is_exact() -> None:
    image = np.arange(16, dtype=np.uint8).reshape(4, 4, 1).repeat(3, 2)
    middle = Transforms.parse("crop(2)").apply([image], [0], 0, 0)
    assert (middle[0, 0] * 255).round().tolist() == [[5, 6], [9, 10]]
    lite = Transforms.parse("normalise(lite)").apply([image], [0], 0, 0)
    want = (torch.arange(16.0).reshape(4, 4) - 127) / 128
    assert torch.allclose(lite[0, 0], want, atol=1e-6)
    own = Transforms.parse("normalise(0, 0.5, 1, 1, 1, 2)").apply([image * 0 + 255], [0], 0, 0)
    assert own[0, :, 0, 0].tolist() == [1.0, 0.5, 0.0]


def test_a_resize_keeps_the_ratio_and_brings_the_shorter_side() -> None:
    image = np.zeros((100, 50, 3), np.uint8)
    assert Transforms.parse("resize(20)").apply([image], [0], 0, 0).shape[2:] == (40, 20)
    assert Transforms.parse("resize(20, 30)").apply([image], [0], 0, 0).shape[2:] == (20, 30)


def test_stored_objects_are_never_written_to() -> None:
    packed = PackedObject.parse(pack([IMAGES[0]], [1], "float32"))
    before = bytes(packed.payload)
    Transforms.parse("brightness, contrast, normalise(half)").apply(packed.images(), [0], 0, 0)
    assert bytes(packed.payload) == before


@pytest.mark.parametrize(
    "text",
    [
        "resize", "resize(0)", "resize(99999)", "resize(1.5)", "resize(a)", "resize(1,2,3)",
        "crop(-1)", "flip(2)", "flip(x)", "normalise", "normalise(1,2)", "normalise(mars)",
        "normalise(0,0,0,0,1,1)", "normalise(nan,0,0,1,1,1)", "normalise(inf,0,0,1,1,1)",
        "random-crop", "random-crop(4,-1)", "random-resized-crop(4, 0)", "resize(4) crop(3)",
        "resize(4", "Flip", "flip;flip", "exec(1)", "flip," * 17, "flip " * 1000,
        "brightness(-1)", "contrast(nan)", "resize(1e400)",
    ],
)  # fmt: skip
def test_lists_that_cannot_be_done_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Transforms.parse(text)


def test_a_misspelt_step_is_told_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean normalise"):
        Transforms.parse("normalize(imagenet)")


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", "[[]]", "[[1]]", '[["flip", null]]', '[["flip", true]]', "[" * 1900,
     '[["crop", [1]]]', '[["crop", NaN]]', '[["crop", 1e999]]', '["flip"]', "[[[[]]]]"],
)  # fmt: skip
def test_json_that_is_no_list_of_steps_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Transforms.from_json(text)


def test_images_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="Add a crop"):
        Transforms.parse("").apply(IMAGES[:2], [0, 1], 0, 0)
    with pytest.raises(InputError, match="Put a resize before"):
        Transforms.parse("crop(224)").apply(IMAGES[:1], [0], 0, 0)
    with pytest.raises(InputError, match="Put a resize before"):
        Transforms.parse("random-crop(224)").apply(IMAGES[:1], [0], 0, 0)
    with pytest.raises(InputError):
        Transforms.parse("").apply(IMAGES[:1], [0, 1], 0, 0)
    with pytest.raises(InputError):
        Transforms.parse("").apply([], [], 0, 0)
    with pytest.raises(InputError):
        Transforms.parse("").apply([IMAGES[0].astype(np.float64)], [0], 0, 0)
    with pytest.raises(InputError, match="would make"):
        Transforms.parse("resize(1024)").apply([np.zeros((1, 4096, 3), np.uint8)], [0], 0, 0)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60) | st.from_regex(r"[a-z-]{2,12}\([0-9a-z.,e-]{0,10}\)", fullmatch=True))
def test_any_text_is_refused_or_read(text: str) -> None:
    for read in (Transforms.parse, Transforms.from_json):
        try:
            transforms = read(text)
        except GarfieldError:
            continue
        assert Transforms.from_json(transforms.to_json()) == transforms
