"""Users' own files: imported, so that what they register is known by name, in every node too."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path

from garfield.core.errors import ConfigError

_loaded: dict[Path, None] = {}


def loaded() -> tuple[Path, ...]:
    """What this process has loaded, for its nodes to load as well."""
    return tuple(_loaded)


def load(path: Path) -> None:
    """Import a Python file by its path; an error in it is told with its line."""
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError(f"--load takes a Python file, and {path} is none.")
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
    """Where in the file it went wrong, as far as the traceback tells."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno},"
    here = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    return f", line {here[-1].lineno}," if here else ""
