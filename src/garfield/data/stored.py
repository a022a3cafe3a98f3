"""The sets that lie in the user's data directory: where they are looked for, and read.

    DIR/mnist/                          or DIR/MNIST/raw/          four idx files
    DIR/fashion-mnist/                  or DIR/FashionMNIST/raw/   four idx files
    DIR/cifar10/cifar-10-batches-bin/   or DIR/cifar-10-batches-bin/
    DIR/cifar10/cifar10.npz

idx files may be gzipped or not. What is not there is an error that says where it was
looked for and how it is got; `garfield.data.download` gets it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from garfield.core.errors import InputError
from garfield.data import cifar
from garfield.data.dataset import Bytes, Dataset
from garfield.data.idx import IMAGES, LABELS, read_idx
from garfield.data.image_kinds import CIFAR10, FASHION, MNIST, ImageKind
from garfield.data.published import DOWNLOADS

_IDX_FILES = (
    ("train-images-idx3-ubyte", IMAGES),
    ("train-labels-idx1-ubyte", LABELS),
    ("t10k-images-idx3-ubyte", IMAGES),
    ("t10k-labels-idx1-ubyte", LABELS),
)
_PICKLED = "cifar-10-batches-py"


def data_directory(given: str | os.PathLike[str] | None = None) -> Path:
    """What was given, else $GARFIELD_DATA, else ~/.cache/garfield."""
    return Path(given or os.environ.get("GARFIELD_DATA") or "~/.cache/garfield").expanduser()


def read_mnist(root: Path) -> Dataset:
    return _idx_set("mnist", root, ("mnist", "MNIST/raw"), MNIST)


def read_fashion(root: Path) -> Dataset:
    return _idx_set("fashion", root, ("fashion-mnist", "FashionMNIST/raw"), FASHION)


def read_cifar10(root: Path) -> Dataset:
    batches = (*cifar.TRAIN_BATCHES, cifar.TEST_BATCH)
    folders = [root / "cifar10/cifar-10-batches-bin", root / "cifar-10-batches-bin"]
    for folder in folders:
        if not _lacking(folder, batches):
            return _made(CIFAR10, folder, cifar.read_batches(folder))
    arrays = root / "cifar10/cifar10.npz"
    if arrays.is_file():
        return _made(CIFAR10, arrays, cifar.read_arrays(arrays))
    error = _missing("cifar10", root, folders, batches, f", and for {arrays}")
    if any((base / _PICKLED).is_dir() for base in (root, root / "cifar10")):
        error = f"{error} {_PICKLED} is there, but pickled, and nothing is unpickled here."
    raise InputError(error)


def _idx_set(name: str, root: Path, places: Sequence[str], kind: ImageKind) -> Dataset:
    folders = [root / place for place in places]
    files = [file for file, _ in _IDX_FILES]
    for folder in folders:
        if not _lacking(folder, files):
            arrays = [read_idx(_present(folder / file), magic) for file, magic in _IDX_FILES]
            return _made(kind, folder, arrays)
    raise InputError(_missing(name, root, folders, files))


def _made(kind: ImageKind, origin: Path, arrays: Sequence[Bytes]) -> Dataset:
    try:
        return kind.of(*arrays)
    except InputError as problem:
        raise InputError(f"{origin}: {problem} Get it again.") from None


def _present(path: Path) -> Path:
    """The file of that name, else the gzipped one."""
    return path if path.is_file() else path.with_name(f"{path.name}.gz")


def _lacking(folder: Path, files: Sequence[str]) -> list[str]:
    return [file for file in files if not _present(folder / file).is_file()]


def _missing(
    name: str, root: Path, folders: Sequence[Path], files: Sequence[str], or_else: str = ""
) -> str:
    """A message that says where what was looked for, and how to get it."""
    places = []
    for folder in folders:
        lacking = _lacking(folder, files)
        partly = len(lacking) < len(files)
        places.append(f"{folder} (which lacks {', '.join(lacking)})" if partly else str(folder))
    sites = " or ".join(sorted({site for file in DOWNLOADS[name] for site in file.sites}))
    return (
        f"{name} is not in {root}. Looked in {' and '.join(places)} for {', '.join(files)}"
        f"{or_else}. Get it with: garfield data fetch {name} --to {root} (from {sites})."
    )
