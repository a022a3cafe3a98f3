"""Data of the user's own: arrays, files, folders of images, saved data sets of Hugging Face."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from garfield.apps.groups import Samples
from garfield.apps.own_parts import data_named
from garfield.core.errors import ConfigError, InputError, UnknownName
from garfield.data.arrays import array_data
from garfield.data.batches import Batches
from garfield.data.sources import anchored, read_source, write_arrays
from garfield.launch.assemble import forget_data, shares_of

X, Y = np.arange(60, dtype=np.float64).reshape(20, 3), np.arange(20) % 4


def read(text, side=None, seed=0):
    return read_source(str(text), seed=seed, side=side)


def test_floats_are_float32_whole_numbers_tokens_and_bytes_images():
    table = array_data((X, Y, X[:4], Y[:4]))
    assert (table.x_train.dtype, table.y_train.dtype) == (np.float32, np.int64)
    assert (table.shape, table.class_count) == ((3,), 4)
    tokens = array_data((Y.reshape(4, 5).astype(np.int32), torch.ones(4, 5, dtype=torch.int32)))
    assert (tokens.x_train.dtype, tokens.shape, tokens.y_train.shape[1:]) == (np.int64, (5,), (5,))
    assert array_data((X, X[:, 0])).class_count is None
    for shape in ((20, 6, 5), (20, 6, 5, 1), (20, 1, 6, 5)):
        images = array_data((np.full(shape, 255, np.uint8), Y))
        assert images.shape == (1, 6, 5)
        inputs, targets = Batches.of(images, [0, 1], batch=2, seed=0).batch(0)
        assert (inputs.dtype, len(targets)) == (np.float32, 2)
        assert inputs.max() == pytest.approx(1.0)


def test_a_tenth_is_held_out_by_the_seed_where_nothing_is_to_test_on():
    first, again, other = (array_data((X, Y), seed=seed) for seed in (1, 1, 2))
    assert (len(first.x_train), len(first.x_test)) == (18, 2)
    np.testing.assert_array_equal(first.x_test, again.x_test)
    assert not np.array_equal(first.x_test, other.x_test)
    assert sorted([*first.x_train[:, 0], *first.x_test[:, 0]]) == sorted(X[:, 0])


NAN = np.where(np.arange(60).reshape(20, 3) == 21, np.nan, X)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((X, Y[:7]), r"x has 20 samples and y has 7\. There must be one target"),
        ((X, Y, X[:3], Y[:2]), r"x_test has 3 samples and y_test has 2"),
        ((NAN, Y), r"x holds 1 numbers that are NaN.*first in sample 7 of 20"),
        ((X, X[:, 0] * 1e60), r"y holds 19 numbers that are NaN, infinite or beyond float32"),
        ((X[:0], Y[:0]), r"x is empty, its shape is \(0, 3\)"),
        ((X[:1], Y[:1]), r"holds 1 sample, and one is held out"),
        ((X, Y, X[:4, :2], Y[:4]), r"x is float32 \(3,\) and one of x_test float32 \(2,\)"),
        ((X, Y, Y[:4], Y[:4]), r"x is float32 \(3,\) and one of x_test int64 \(\)"),
        ((X.astype(str), Y), r"x holds texts, and a model takes numbers. Encode"),
        ((X, [[1], [2, 3]]), r"y is no array.*padding"),
        ((X, 3), r"y is one number"),
        ((X, Y, X), r"data is 3 parts\. It must be \(x, y\) or"),
        ({"x": X, "labels": Y}, r"data holds x, labels\. It must hold x and y"),
        (7, r"data is int\. It must be"),
    ],
)
def test_data_that_cannot_be_used_are_refused_with_numbers_and_a_remedy(given, message):
    with pytest.raises(InputError, match=message):
        array_data(given)


def test_arrays_are_read_from_one_file_or_shared_from_several(tmp_path):
    np.savez(tmp_path / "d.npz", x_train=X, y_train=Y, x_test=X[:4], y_test=Y[:4])
    whole = read(tmp_path / "d.npz")
    assert (len(whole.x_train), len(whole.x_test), whole.class_count) == (20, 4, 4)
    shared = read(write_arrays(tmp_path / "kept", whole))
    np.testing.assert_array_equal(shared.x_train, whole.x_train)
    assert not shared.x_train.flags.owndata  # of the file itself: processes share its pages
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    for name, message in (("bad", "does not hold plain arrays"), ("none", "There is no file")):
        with pytest.raises(InputError, match=message):
            read(tmp_path / f"{name}.npz")
    with pytest.raises(InputError, match=r"none of x\.npy"):
        read(f"arrays:{tmp_path}")
    assert anchored("folder:in", tmp_path) == f"folder:{tmp_path}/in"
    assert anchored("/a/d.npz", tmp_path) == "/a/d.npz"


def pictures(folder, classes, size=(6, 5), mode="L", count=5):
    for number, kind in enumerate(classes):
        (folder / kind).mkdir(parents=True)
        for i in range(count):
            Image.new(mode, size, 40 * number + i).save(folder / kind / f"{i}.png")


def test_a_folder_of_images_has_a_class_for_each_folder(tmp_path):
    pictures(tmp_path / "in", ["cat", "dog"])
    held_out = read(f"folder:{tmp_path}/in")
    assert (held_out.shape, len(held_out.x_train), len(held_out.x_test)) == ((1, 5, 6), 9, 1)
    pictures(tmp_path / "both" / "train", ["cat", "dog", "eel"], mode="RGB")
    pictures(tmp_path / "both" / "test", ["dog"], mode="RGB", count=2)
    both = read(f"folder:{tmp_path}/both", side=4)
    assert (both.shape, both.class_count, both.y_test.tolist()) == ((3, 4, 4), 3, [1, 1])
    pictures(tmp_path / "both" / "test", ["fox"], mode="RGB")
    with pytest.raises(InputError, match=r"has a folder fox, and .*train has not"):
        read(f"folder:{tmp_path}/both", side=4)
    pictures(tmp_path / "in", ["elk"], size=(9, 9))
    with pytest.raises(InputError, match=r"9×9.*--image-side"):
        read(f"folder:{tmp_path}/in")


def saved(folder, columns, **state):
    """A data set as `datasets.Dataset.save_to_disk` writes it."""
    import pyarrow as arrow

    folder.mkdir(parents=True)
    table = arrow.table(columns)
    with arrow.ipc.new_stream(str(folder / "data-00000-of-00001.arrow"), table.schema) as writer:
        writer.write_table(table)
    files = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], **state}
    (folder / "state.json").write_text(json.dumps(files))


def png(value):
    import io

    file = io.BytesIO()
    Image.new("L", (4, 3), value).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def test_a_data_set_of_hugging_face_is_read_from_its_files(tmp_path):
    tokens = {"input_ids": [[1, 2, 3], [4, 5, 6]], "attention_mask": [[1] * 3] * 2, "label": [0, 1]}
    for split in ("train", "test"):
        saved(tmp_path / "d" / split, tokens)
    (tmp_path / "d" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    found = read(f"hf:{tmp_path}/d")
    assert found.x_train.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert (found.x_train.dtype, found.y_test.tolist()) == (np.int64, [0, 1])
    saved(tmp_path / "i", {"image": [png(9), png(8)], "label": [0, 1]})
    assert read(f"hf:{tmp_path}/i").shape == (1, 3, 4)
    table = {"a": [1.0, 2.0], "b": [3, 4], "price": [0.5, 0.25]}
    saved(tmp_path / "t", table)
    prices = read(f"hf:{tmp_path}/t#a,b,price")
    assert (prices.shape, prices.class_count, prices.x_train.dtype) == ((2,), None, np.float32)


def test_a_saved_data_set_that_cannot_be_used_says_what_to_do(tmp_path):
    table = {"a": [1.0, 2.0], "text": ["x", "y"], "rag": [[1], [1, 2]], "label": [0, 1]}
    saved(tmp_path / "t", table)
    for columns, message in (
        ("text,label", "holds texts.*tokens of one length"), ("rag,label", "have 1 to 2 values"),
        ("b,label", r"has the columns a, text, rag, label\. Name inputs"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            read(f"hf:{tmp_path}/t#{columns}")
    saved(tmp_path / "u", {"a": [1.0, 2.0]})
    with pytest.raises(InputError, match="none of which is called label"):
        read(f"hf:{tmp_path}/u")
    saved(tmp_path / "s", table, _indices_files=[{"filename": "i.arrow"}])
    with pytest.raises(InputError, match="flatten_indices"):
        read(f"hf:{tmp_path}/s")
    with pytest.raises(InputError, match=r"saved by save_to_disk: it has no state\.json"):
        read(f"hf:{tmp_path}")


def test_numbers_to_come_close_to_are_dealt_iid_alone(tmp_path):
    np.savez(tmp_path / "d.npz", x=X, y=X[:, 0])
    samples = Samples(data=str(tmp_path / "d.npz"))
    shares = shares_of(samples, 3, 0)
    assert sorted(np.concatenate(shares)) == list(range(18))
    with pytest.raises(ConfigError, match=r"by class, and the targets .* float32 \(18,\)"):
        shares_of(Samples(data=samples.data, partition="dirichlet(alpha=1)"), 3, 0)
    forget_data()
    with pytest.raises(UnknownName, match="Did you mean digits"):
        data_named(Samples(data="digit"), 0)
