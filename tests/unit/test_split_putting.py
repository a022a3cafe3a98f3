"""Packing a folder: shuffled by a seed, stored as asked, and resumed where it was interrupted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from garfield.core.errors import ConfigError, InputError, StoreUnreachable
from garfield.split.objects import open_object, read_index
from garfield.split.objects.packing import JOURNAL, Packing, pack_folder, put_arrays
from garfield.split.putting import PutSettings, put
from garfield.split.stores import open_store
from garfield.split.stores.files import FileStore

CLASSES = ("ants", "bees", "cats")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three classes of 5, 6 and 7 images; each tells in its first pixel which it is."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(CLASSES):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(5 + label):
            pixels = rng.integers(0, 256, (20 + number, 24, 3), np.uint8)
            pixels[:8, :8] = (label * 100, number * 20, 0)
            path = tmp_path / "images" / name / f"{number}.{'png' if number % 2 else 'jpg'}"
            Image.fromarray(pixels).save(path, quality=95)
    (tmp_path / "images" / "ants" / "notes.txt").write_text("no image")
    return tmp_path / "images"


@pytest.mark.parametrize("kind", ["jpeg", "uint8", "float32"])
def test_a_folder_is_put_and_comes_back_with_its_labels(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    url = f"file://{tmp_path}/store"
    settings = PutSettings(to=url, stored_as=kind, images_per_object=7, side=16, seed=3)
    told: list[tuple[int, int]] = []
    summary = put(folder, settings, progress=lambda done, total: told.append((done, total)))
    assert (summary.images, summary.classes, summary.objects) == (18, 3, 3)
    assert told[0] == (0, 18)
    assert told[-1] == (18, 18)
    store = open_store(url)
    index = read_index(store)
    assert index.kind == kind
    assert index.classes == CLASSES
    assert [entry.count for entry in index.objects] == [7, 7, 4]
    labels = []
    for entry in index.objects:
        held = open_object(entry.name, store.get(entry.name), entry.sha256)
        labels += held.labels.tolist()
        for image, label in zip(held.images(), held.labels, strict=True):
            red = image[0, 2, 2] * 255 if kind == "float32" else image[2, 2, 0]
            assert abs(float(red) - label * 100) < 45  # JPEG mixes colours of neighbours
    assert sorted(labels) == [0] * 5 + [1] * 6 + [2] * 7
    assert labels != sorted(labels)
    assert JOURNAL not in store.names()


def test_jpeg_files_are_stored_as_they_are(folder: Path, tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    index = pack_folder(folder, store, Packing(images_per_object=100))
    held = open_object(index.objects[0].name, store.get(index.objects[0].name))
    stored = {held.encoded(at) for at in range(held.count)}  # type: ignore[attr-defined]
    for path in folder.rglob("*.jpg"):
        assert path.read_bytes() in stored


def test_the_same_seed_gives_the_same_objects(folder: Path, tmp_path: Path) -> None:
    indexes = [
        pack_folder(folder, open_store(f"file://{tmp_path}/{name}"), Packing(seed=seed))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert indexes[0] == indexes[1]
    assert indexes[0].objects[0].sha256 != indexes[2].objects[0].sha256


class FailingStore(FileStore):
    """A store that ends with the n-th object."""

    puts_left = 2

    def put(self, name: str, data: bytes) -> None:
        if name.startswith("part-"):
            if not self.puts_left:
                raise StoreUnreachable("gone")
            self.puts_left -= 1
        super().put(name, data)


def test_an_interrupted_put_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    packing = Packing(images_per_object=4, seed=5)
    store = FailingStore(tmp_path / "store", f"file://{tmp_path}/store", None)
    with pytest.raises(StoreUnreachable):
        pack_folder(folder, store, packing)
    assert "index.json" not in store.names()
    store.puts_left = 3  # of five objects, two are there
    index = pack_folder(folder, store, packing)
    assert index == pack_folder(folder, open_store(f"file://{tmp_path}/fresh"), packing)


def test_an_interrupted_put_of_other_images_is_not_taken_for_ours(
    folder: Path, tmp_path: Path
) -> None:
    store = FailingStore(tmp_path / "store", f"file://{tmp_path}/store", None)
    with pytest.raises(StoreUnreachable):
        pack_folder(folder, store, Packing(images_per_object=4, seed=5))
    store.puts_left = 100
    other = Packing(images_per_object=4, seed=6)
    index = pack_folder(folder, store, other)
    assert index == pack_folder(folder, open_store(f"file://{tmp_path}/fresh"), other)


def test_arrays_are_put_without_a_folder(tmp_path: Path) -> None:
    images = np.arange(10, dtype=np.uint8).reshape(10, 1, 1, 1).repeat(3, 3)
    store = open_store(f"file://{tmp_path}")
    packing = Packing(images_per_object=4)
    index = put_arrays(store, images, np.arange(10), [str(i) for i in range(10)], packing)
    assert index.total == 10


def test_what_cannot_be_put_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    with pytest.raises(InputError, match="must be of one size"):
        pack_folder(folder, store, Packing(kind="uint8"))  # type: ignore[arg-type]
    (folder / "bees" / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    with pytest.raises(InputError, match=r"broken\.jpg"):
        pack_folder(folder, store)
    (folder / "bees" / "broken.jpg").write_bytes(b"text")
    with pytest.raises(InputError, match=r"broken\.jpg"):
        pack_folder(folder, store)
    with pytest.raises(InputError, match="no images in subfolders"):
        pack_folder(folder / "ants", store)
    with pytest.raises(InputError, match="is not a folder"):
        pack_folder(folder / "nothing", store)
    with pytest.raises(ConfigError, match="--to"):
        put(folder, PutSettings())
    with pytest.raises(ConfigError, match="stored_as"):
        PutSettings(stored_as="pickle")


def test_a_place_that_no_folder_can_be_made_at_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreUnreachable, match="file/x cannot be made: Not a directory"):
        put(folder, PutSettings(to=f"file://{tmp_path}/file/x"))
