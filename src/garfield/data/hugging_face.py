"""A data set that Hugging Face's `datasets` has saved to a disk, read by pyarrow alone.

    DIR/dataset_dict.json              the names of splits, each in a folder of its own
    DIR/train/state.json               which files, in which order
    DIR/train/dataset_info.json        what the columns are
    DIR/train/data-00000-of-00001.arrow

A data set that was saved alone has the last three in DIR. Inputs are the column that is called
image, img, pixel_values, input_ids, x, features or inputs, or all other columns of numbers side by
side; targets the one called label, labels, target, targets or y.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from garfield.core.errors import InputError, MissingDependency
from garfield.data.arrays import Array
from garfield.data.pictures import read_picture, stacked

_INPUTS = ("image", "img", "pixel_values", "input_ids", "x", "features", "inputs")
_TARGETS = ("label", "labels", "target", "targets", "y")
_TRAIN, _TEST = ("train",), ("test", "validation", "valid")
_INDICES = "_indices_files"
_PADDING = ("attention_mask", "token_type_ids")


def read_saved(directory: Path, columns: str, side: int | None) -> dict[str, Any]:
    """Arrays x and y, with x_test and y_test if the data set has such a split."""
    splits = directory / "dataset_dict.json"
    if not splits.is_file():
        x, y = _read_split(directory, columns, side)
        return {"x": x, "y": y}
    names = _json(splits).get("splits", [])
    train = next((name for name in _TRAIN if name in names), None)
    if train is None:
        raise InputError(f"{directory} has the splits {', '.join(names)}, and none called train.")
    x, y = _read_split(directory / train, columns, side)
    test = next((name for name in _TEST if name in names), None)
    if test is None:
        return {"x": x, "y": y}
    x_test, y_test = _read_split(directory / test, columns, side)
    return {"x": x, "y": y, "x_test": x_test, "y_test": y_test}


def _read_split(directory: Path, columns: str, side: int | None) -> tuple[Array, Array]:
    table = _table(directory)
    inputs, target = _chosen(directory, table.column_names, columns)
    parts = [_column(directory, table.column(name), name, side) for name in inputs]
    if len(parts) > 1:
        flat = [part.reshape(len(part), -1).astype(np.float32) for part in parts]
        parts = [np.concatenate(flat, axis=1)]
    return parts[0], _column(directory, table.column(target), target, side)


def _chosen(directory: Path, names: Sequence[str], columns: str) -> tuple[list[str], str]:
    """The columns of inputs, and that of targets."""
    if columns:
        chosen = [name.strip() for name in columns.split(",")]
        strange = [name for name in chosen if name not in names]
        if strange or len(chosen) < 2:
            raise InputError(
                f"{directory} has the columns {', '.join(names)}. Name inputs and then targets, as "
                f"in hf:DIR#{names[0]},{names[-1]}; got {columns}."
            )
        return chosen[:-1], chosen[-1]
    target = next((name for name in _TARGETS if name in names), None)
    if target is None:
        raise InputError(
            f"{directory} has the columns {', '.join(names)}, none of which is called "
            f"{', '.join(_TARGETS[:-1])} or {_TARGETS[-1]}. Name inputs and targets: "
            f"hf:DIR#{names[0]},{names[-1]}"
        )
    usual = [name for name in _INPUTS if name in names]
    others = [name for name in names if name not in (target, *_PADDING)]
    return (usual[:1] or others), target


def _table(directory: Path) -> Any:
    try:
        import pyarrow as arrow
        from pyarrow import ipc
    except ImportError:
        raise MissingDependency(
            "Data sets of Hugging Face are read with pyarrow, which is not installed. "
            "Install it with: pip install 'garfield-ml[hf]'"
        ) from None
    state = _json(directory / "state.json")
    if state.get(_INDICES):
        raise InputError(
            f"{directory} is a selection of rows of another order. Call flatten_indices() and save "
            "it again."
        )
    files = [directory / each["filename"] for each in state.get("_data_files", [])]
    try:
        tables = [ipc.open_stream(arrow.memory_map(str(path))).read_all() for path in files]
        return arrow.concat_tables(tables)
    except (OSError, arrow.ArrowInvalid) as problem:
        raise InputError(f"{directory} cannot be read as a saved data set: {problem}") from None


def _column(directory: Path, column: Any, name: str, side: int | None) -> Array:
    if column.null_count:
        raise InputError(f"{directory}: {name} lacks {column.null_count} values. Fill them in.")
    kind = str(column.type)
    if kind.startswith("struct<bytes"):
        return _pictures(directory, column.to_pylist(), name, side)
    if kind in ("string", "large_string"):
        raise InputError(
            f"{directory}: {name} holds texts, and a model takes numbers. Turn them into tokens of "
            "one length first (data.map(tokenizer, ...)), and save again."
        )
    values = column.combine_chunks()
    if "list" not in kind and not kind.startswith("extension"):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    if kind.startswith("list<item: ") and kind.count("list<") == 1:
        lengths = values.value_lengths().to_numpy()
        if len(set(lengths.tolist())) == 1:  # without a Python object for every number
            flat = np.asarray(values.flatten().to_numpy(zero_copy_only=False))
            return flat.reshape(len(lengths), -1)
    return _nested(directory, column.to_pylist(), name)


def _nested(directory: Path, rows: list[Any], name: str) -> Array:
    try:
        return np.asarray(rows)
    except ValueError:
        lengths = [len(row) for row in rows]
        raise InputError(
            f"{directory}: the lists of {name} have {min(lengths)} to {max(lengths)} values. Make "
            "them of one length, by padding say, and save again."
        ) from None


def _pictures(directory: Path, rows: list[Any], name: str, side: int | None) -> Array:
    names = [f"{name} {number} of {directory}" for number in range(len(rows))]
    read = []
    for row, called in zip(rows, names, strict=True):
        source = row["bytes"] if row["bytes"] is not None else Path(row["path"])
        read.append(read_picture(source, called, side))
    return stacked(read, names)


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(
            f"{path.parent} holds no data set that was saved by save_to_disk: it has no "
            f"{path.name}."
        ) from None
    except ValueError as problem:
        raise InputError(f"{path} cannot be read: {problem}") from None
    return found if isinstance(found, dict) else {}
