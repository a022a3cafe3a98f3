"""Data of a user's by a text: a file of arrays, a folder of images, a Hugging Face data set.

    data.npz      plain arrays x and y, with x_test and y_test or without
    arrays:DIR    the same as DIR/x.npy and so on, not read into memory before it is needed
    folder:DIR    a folder of images for each class, below DIR/train and DIR/test or below DIR
    hf:DIR        what `Dataset.save_to_disk` or `DatasetDict.save_to_disk` has written, with
                  #INPUT,TARGET behind it where the columns do not go by a usual name

Nothing is unpickled. Whatever comes without samples to test on has every tenth held out.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from garfield.core.errors import InputError
from garfield.data.arrays import NAMES, ArrayData, array_data
from garfield.data.pictures import classes_in, pictures_in, read_picture, stacked

ARRAYS, FOLDER, HUGGING_FACE, NPZ = "arrays:", "folder:", "hf:", ".npz"
_PREFIXES = (ARRAYS, FOLDER, HUGGING_FACE)


def is_source(text: str) -> bool:
    """Whether this text says where data lie, and in what form."""
    return text.startswith(_PREFIXES) or text.endswith(NPZ)


def anchored(text: str, base: Path) -> str:
    """The same source with its path made absolute, from `base`."""
    prefix = next((prefix for prefix in _PREFIXES if text.startswith(prefix)), "")
    path = Path(text.removeprefix(prefix)).expanduser()
    return f"{prefix}{base.absolute() / path}"


def read_source(text: str, *, seed: int, side: int | None) -> ArrayData:
    """The data that are there; `side` is what images of a folder are scaled to."""
    if text.startswith(ARRAYS):
        return array_data(_mapped(Path(text.removeprefix(ARRAYS))), seed=seed, where=text)
    if text.startswith(FOLDER):
        return _folder(Path(text.removeprefix(FOLDER)), seed, side)
    if text.startswith(HUGGING_FACE):
        from garfield.data.hugging_face import read_saved

        directory, _, columns = text.removeprefix(HUGGING_FACE).partition("#")
        return array_data(read_saved(Path(directory), columns, side), seed=seed, where=text)
    return array_data(_npz(Path(text)), seed=seed, where=text)


def write_arrays(directory: Path, data: ArrayData) -> str:
    """Keep data as files that processes share; the text by which they find them."""
    directory.mkdir(parents=True, exist_ok=True)
    arrays = (data.x_train, data.y_train, data.x_test, data.y_test)
    for name, array in zip(NAMES, arrays, strict=True):
        np.save(directory / f"{name}.npy", array, allow_pickle=False)
    return f"{ARRAYS}{directory.absolute()}"


def _mapped(directory: Path) -> dict[str, Any]:
    found = {name: directory / f"{name}.npy" for name in NAMES}
    present = {name: path for name, path in found.items() if path.is_file()}
    if not present:
        raise InputError(f"There is none of {', '.join(p.name for p in found.values())} in "
                         f"{directory}.")  # fmt: skip
    try:
        return {
            name: np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
            for name, path in present.items()
        }
    except (ValueError, EOFError, OSError) as problem:
        raise InputError(f"{directory} does not hold plain arrays: {problem}") from None


def _npz(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"There is no file {path} to read data from.")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as problem:
        raise InputError(f"{path} does not hold plain arrays: {problem}") from None


def _folder(folder: Path, seed: int, side: int | None) -> ArrayData:
    splits = [folder / "train", folder / "test"]
    where = f"{FOLDER}{folder}"
    if not all(split.is_dir() for split in splits):
        return array_data(_labelled(folder, [p.name for p in classes_in(folder)], side),
                          seed=seed, where=where)  # fmt: skip
    train, test = ([kind.name for kind in classes_in(split)] for split in splits)
    if strange := sorted(set(test).difference(train)):
        raise InputError(
            f"{splits[1]} has a folder {strange[0]}, and {splits[0]} has not. Its classes are: "
            f"{', '.join(train)}."
        )
    parts = (*_labelled(splits[0], train, side), *_labelled(splits[1], train, side))
    return array_data(parts, seed=seed, where=where)


def _labelled(folder: Path, classes: list[str], side: int | None) -> tuple[Any, Any]:
    """The pictures of each class, in the order of their names."""
    kinds = [folder] if classes == [folder.name] else [folder / name for name in classes]
    files = [
        (label, path)
        for label, kind in enumerate(kinds)
        if kind.is_dir()
        for path in pictures_in(kind)
    ]
    names = [str(path) for _, path in files]
    pictures = [read_picture(path, str(path), side) for _, path in files]
    return stacked(pictures, names), np.array([label for label, _ in files], dtype=np.int64)
