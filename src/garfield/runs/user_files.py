"""Users' own files: imported, so that what they register is known by name, in every node too.

They are named by --load, or by `load` in a file of settings: `load = ["mine.py"]`, beside
that file. A run's config.toml records them, so a resumed run has them again.

A reference names one thing in a file or an importable module: `mine.py:Net`, `torch.optim:Adam`.
Every process finds it for itself; nothing is pickled.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

from garfield.core.blame import told
from garfield.core.errors import ConfigError, UnknownName

_loaded: dict[Path, None] = {}
_loading: list[Path] = []
_REFERENCE = re.compile(r"(?P<home>.+\.py|[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)")


def loaded() -> tuple[Path, ...]:
    """Files that this process has loaded, for its nodes to load as well."""
    return tuple(_loaded)


def recorded() -> dict[str, list[str]]:
    """The entry of a run's config.toml; empty if nothing was loaded."""
    return {"load": [str(path) for path in _loaded]} if _loaded else {}


def being_loaded() -> Path | None:
    """The file of the user's that is being imported just now, if any."""
    return _loading[-1] if _loading else None


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
    if name in sys.modules:  # of a file of that name elsewhere
        name = f"{name}_{crc32(str(path.absolute()).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # the suffix was checked
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    _find_neighbours(path)
    _loading.append(path)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(
            f"{path}{_line(error, path)} failed to load: {type(error).__name__}: {error}"
        ) from error
    finally:
        _loading.pop()
    _loaded[path.absolute()] = None


def is_reference(text: str) -> bool:
    """Whether this text names a thing in a file or module: `mine.py:Net`."""
    return _REFERENCE.fullmatch(text) is not None


def anchored(reference: str, base: Path) -> str:
    """The same reference with the path of its file made absolute, from `base`."""
    home, _, name = reference.rpartition(":")
    return f"{base.absolute() / Path(home).expanduser()}:{name}" if _is_file(home) else reference


def found(reference: str) -> Any:
    """What a reference names; its file or module is imported if it is not yet."""
    home, _, name = reference.rpartition(":")
    thing: Any = _of_file(Path(home)) if _is_file(home) else _of_name(home)
    for part in name.split("."):
        if not hasattr(thing, part):
            public = [each for each in vars(thing) if not each.startswith("_")]
            raise UnknownName(f"defined in {home}", name, public)
        thing = getattr(thing, part)
    return thing


def reference_of(thing: Any) -> str | None:
    """The reference by which another process finds a class or function; None if it cannot.

    What is defined in a notebook, on a command line or inside a function cannot be found.
    """
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    name = getattr(thing, "__qualname__", "")
    file = getattr(module, "__file__", None)
    if module is None or not file or not file.endswith(".py") or not Path(file).is_file():
        return None
    in_package = "." in module.__name__ or Path(file).name == "__init__.py"
    reference = f"{module.__name__ if in_package else Path(file).absolute()}:{name}"
    if not is_reference(reference):
        return None
    try:
        return reference if found(reference) is thing else None
    except ConfigError:
        return None


def _is_file(home: str) -> bool:
    return home.endswith(".py")


def _of_file(path: Path) -> ModuleType:
    """The module of a file: as it was imported already, also as the script that is running."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        if str(file).endswith(path.name) and Path(file).absolute() == path.absolute():
            return module
    if not path.is_file():
        raise ConfigError(f"There is no file {path}.")
    load(path)
    return _of_file(path)


def _of_name(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as problem:
        raise ConfigError(
            f"The module {name} cannot be imported: {told(problem)}. Name its file instead, as in "
            "mine.py:Net, or install it."
        ) from None


def _find_neighbours(path: Path) -> None:
    """Let a file import those beside it, as a script can; what is installed comes first."""
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.append(folder)


def _line(error: Exception, path: Path) -> str:
    """Find the line of the file that went wrong, as far as the traceback tells."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno},"
    here = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename in (str(path), str(path.absolute()))  # importlib makes it absolute
    ]
    return f", line {here[-1].lineno}," if here else ""
