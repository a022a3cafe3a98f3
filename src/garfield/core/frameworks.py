"""The frameworks that compute gradients: both optional, both slow to import, one loud.

Some of what TensorFlow prints on import passes by its own log level. So while it is
imported standard error goes to a file, and is shown only if the import fails.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from garfield.core.errors import MissingDependency

FRAMEWORKS = {"torch": "PyTorch", "tensorflow": "TensorFlow"}


def require(frameworks: Iterable[str]) -> None:
    """MissingDependency, with the command that installs it, for the first that is not here."""
    for name in frameworks:
        if name not in sys.modules and find_spec(name) is None:
            raise MissingDependency(
                f"{FRAMEWORKS[name]} is not installed. "
                f"Install it with: pip install 'garfield-ml[{name}]'"
            )


def tensorflow() -> Any:
    """The module, imported without its greetings."""
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    require(["tensorflow"])
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only; later imports inherit it
    with _hushed():
        return import_module("tensorflow")


@contextmanager
def _hushed() -> Iterator[None]:
    """Standard error of C code too, kept back unless something goes wrong."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(kept, 2)
            aside.seek(0)
            os.write(2, aside.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
