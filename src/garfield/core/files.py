"""Files that are there whole or not at all, and the one way to write JSON.

A new version of a file is written beside it under another name, flushed to the disk, and
only then renamed: whoever reads, and whoever comes after a power cut, finds the new file
or the old one, never a part.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path to write to; what is there when the block ends takes the name `path`.

    If the block raises, `path` stays as it was.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield partial
        _flush(partial)
        partial.replace(path)
        _flush(path.parent)  # the new name too
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace a file by one that holds this text."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Replace a file by one that holds this value, indented."""
    write_text(path, as_json(value, indent=2) + "\n")


def as_json(value: Any, *, indent: int | None = None) -> str:
    """A value as strict JSON: a number that is not finite becomes null, a dataclass an object."""
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flush(path: Path) -> None:
    """Wait until the disk has it; some file systems cannot do that for a directory."""
    opened = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(opened)
    finally:
        os.close(opened)
