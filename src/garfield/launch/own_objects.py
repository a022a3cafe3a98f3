"""Models, data and the like that a Python program hands over, and the names settings have for them.

What another process can find for itself goes by a reference (`mine.py:Net`). What lies in this
process alone is held under `memory:NAME`: simulations take it from there. Arrays can be written
to the run's directory, so that processes can read them; nothing is ever pickled.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from garfield.apps.own_parts import MEMORY, anchored, learning_data
from garfield.core.errors import ConfigError
from garfield.data.arrays import ArrayData
from garfield.data.sources import write_arrays
from garfield.runs.user_files import reference_of

_DATA = "data-"  # in front of the name of the folder that holds arrays


@dataclass
class OwnObjects:
    """What was handed over: names for settings, and what lies in memory under some of them."""

    names: dict[str, str] = field(default_factory=dict)
    """Values of settings, by the settings' names."""
    parts: dict[str, Any] = field(default_factory=dict)
    """What this process holds, by its name."""

    def take(self, part: str, given: Any) -> None:
        """Find a name for a model, loss, metric or optimizer; texts are names already."""
        if isinstance(given, str):
            self.names |= anchored({part: given}, Path())
            return
        reference = reference_of(given)
        if reference is None:
            name = getattr(given, "__name__", type(given).__name__)
            reference = f"{MEMORY}{name}"
            if self.parts.get(reference, given) is not given:  # two of one name, as lambdas are
                reference = f"{MEMORY}{part}-{name}"
            self.parts[reference] = given
        self.names[part] = reference

    def take_data(self, given: Any, seed: int) -> None:
        """Find a name for data: that of what they hold, if they are arrays."""
        if isinstance(given, (str, os.PathLike)):
            self.take("data", os.fspath(given))
        elif callable(given) and not hasattr(given, "targets"):
            self.take("data", given)
        else:
            data = learning_data(given, seed, "data")
            held_by = f"{digest(data)}" if isinstance(data, ArrayData) else type(data).__name__
            self.names["data"] = f"{MEMORY}{held_by}"
            self.parts[f"{MEMORY}{held_by}"] = data

    def written(self, directory: Path) -> str | None:
        """The name of these data as files in the run's directory, for processes to read; None if
        they are not in memory."""
        data = self.parts.get(self.names.get("data", ""))
        if not isinstance(data, ArrayData):
            return None
        return write_arrays(directory / f"{_DATA}{digest(data)}", data)

    def refuse_unfindable(self) -> None:
        """Raise ConfigError for what other processes cannot find, with the remedies."""
        for part, name in self.names.items():
            given = self.parts.get(name)
            if given is None or isinstance(given, ArrayData):
                continue
            what = name.removeprefix(MEMORY)
            raise ConfigError(
                f"The {part} {what} lies in this process alone ({_why(given)}), and the nodes of "
                "this run are processes that must find it for themselves. Put it into a file and "
                f'give its name, {part}="mine.py:{what.rpartition(".")[2]}"; or train with '
                "simulate=True."
            )


def digest(data: ArrayData) -> str:
    """A few letters that stand for just these arrays."""
    found = blake2b(digest_size=6)
    for array in (data.x_train, data.y_train, data.x_test, data.y_test):
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def held_parts(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of these names lies in memory and was given again."""
    return {
        name: thing
        for name, thing in given.items()
        if name.startswith(MEMORY) and thing is not None
    }


def _why(given: Any) -> str:
    if not hasattr(given, "__qualname__"):
        return f"it is an instance of {type(given).__name__}, not a class or function"
    if "<" in given.__qualname__:
        return "it is defined inside a function"
    return "it is defined in a notebook or at a prompt"
