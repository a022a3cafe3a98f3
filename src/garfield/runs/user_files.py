"""Users' own files: imported, so that what they register is known by name, in every node too.

They are named by --load, or by `load` in a file of settings: `load = ["mine.py"]`, beside
that file. A run's config.toml records them, so a resumed run has them again.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from garfield.core.errors import ConfigError

_loaded: dict[Path, None] = {}


def loaded() -> tuple[Path, ...]:
    """Files that this process has loaded, for its nodes to load as well."""
    return tuple(_loaded)


def recorded() -> dict[str, list[str]]:
    """The entry of a run's config.toml; empty if nothing was loaded."""
    return {"load": [str(path) for path in _loaded]} if _loaded else {}


def without_files(content: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Settings without their `load`, whose files are loaded: paths start from `base`."""
    rest = dict(content)
    files = rest.pop("load", [])
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise ConfigError(f'load must be a list of Python files, as ["mine.py"], got {files!r}.')
    for file in files:
        load(base / file)
    return rest


def load(path: Path) -> None:
    """Import a Python file by its path, once; an error in it is told with its line."""
    if path.absolute() in _loaded:
        return
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError(f"--load takes a Python file, and {path} is none or is not there.")
    name = f"garfield_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # the suffix was checked
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(
            f"{path}{_line(error, path)} failed to load: {type(error).__name__}: {error}"
        ) from error
    _loaded[path.absolute()] = None


def _line(error: Exception, path: Path) -> str:
    """Find the line of the file that went wrong, as far as the traceback tells."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno},"
    here = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    return f", line {here[-1].lineno}," if here else ""
