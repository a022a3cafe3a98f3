"""The bundled data set, and the program that made it."""

import gzip
from importlib.resources import files

import numpy as np
import pytest

from garfield.core.errors import InputError
from garfield.data import fashion_small
from tools.make_subset import make_subset


def _write_idx(path, array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()))


@pytest.fixture
def idx_dir(tmp_path):
    """A tiny set of three classes, in the original's format."""
    rng = np.random.default_rng(0)
    for prefix, count in (("train", 60), ("t10k", 30)):
        labels = np.arange(count, dtype=np.uint8) % 3
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        images[:, 0, 0] = labels
        _write_idx(tmp_path / f"{prefix}-images-idx3-ubyte.gz", images)
        _write_idx(tmp_path / f"{prefix}-labels-idx1-ubyte.gz", labels)
    return tmp_path


def test_fashion_small_has_200_and_50_images_of_every_class():
    data = fashion_small()
    assert data.x_train.shape == (2000, 28, 28)
    assert data.x_test.shape == (500, 28, 28)
    assert data.x_train.dtype == data.x_test.dtype == np.uint8
    assert np.bincount(data.y_train).tolist() == [200] * 10
    assert np.bincount(data.y_test).tolist() == [50] * 10
    assert len(data.classes) == 10


def test_fashion_small_is_shuffled_and_holds_no_image_twice():
    data = fashion_small()
    images = np.concatenate([data.x_train, data.x_test]).reshape(2500, -1)
    assert len(np.unique(images, axis=0)) == 2500
    assert (np.bincount(data.y_train[:500], minlength=10) > 20).all()


def test_the_licence_lies_beside_the_data():
    text = (files("garfield.data") / "fashion-small.LICENSE").read_text(encoding="utf-8")
    assert "MIT License" in text
    assert "2017 Zalando SE" in text


def test_a_subset_is_stratified_repeatable_and_keeps_labels_with_their_images(idx_dir):
    subset = make_subset(idx_dir, train_per_class=7, test_per_class=2)
    assert np.bincount(subset["y_train"]).tolist() == [7] * 3
    assert np.bincount(subset["y_test"]).tolist() == [2] * 3
    assert (subset["x_train"][:, 0, 0] == subset["y_train"]).all()
    again = make_subset(idx_dir, train_per_class=7, test_per_class=2)
    assert all((subset[name] == again[name]).all() for name in subset)


def test_a_damaged_source_is_refused(idx_dir):
    labels = idx_dir / "train-labels-idx1-ubyte.gz"
    whole = gzip.decompress(labels.read_bytes())
    labels.write_bytes(gzip.compress(whole[:-1]))
    with pytest.raises(InputError, match="should hold 60 bytes, has 59"):
        make_subset(idx_dir)
    labels.write_bytes((idx_dir / "train-images-idx3-ubyte.gz").read_bytes())
    with pytest.raises(InputError, match="0x803"):
        make_subset(idx_dir)
    labels.unlink()
    with pytest.raises(InputError, match="is not there"):
        make_subset(idx_dir)


def test_more_examples_than_a_class_has_are_refused(idx_dir):
    with pytest.raises(InputError, match="Class 0 has 20 examples, 21 are wanted"):
        make_subset(idx_dir, train_per_class=21)
