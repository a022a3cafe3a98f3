"""Errors of code that is not ours, in one line: type, message, and the user's file and line.

An error of ours says all that is to be said. One of a user's rule, attack or application is told
with the place where their code went wrong, which is the innermost frame outside of this package
and of everything that is installed.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from garfield.core.errors import GarfieldError, InputError

_OURS = str(Path(__file__).parents[1])
_INSTALLED = tuple(
    path for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_paths().get(name))
)  # fmt: skip


UNFORESEEN = "Not foreseen:"
"""Stands in the one line that a command prints of an error which none of ours was made for."""


class Signal(Exception):  # noqa: N818 (passed between parts of ours, no error)
    """The root of what our own parts raise for each other: nobody is blamed for it."""


class RemoteTraceback(Exception):  # noqa: N818 (no error by itself)
    """The traceback of another process, as text: shown above that of the error it is cause of."""

    def __str__(self) -> str:
        return f"\n{super().__str__().rstrip()}"


def told(error: BaseException) -> str:
    """An error in a line; with its type and place, unless it is one of ours."""
    if isinstance(error, GarfieldError):
        return str(error)
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}{_place(error)}"


def unforeseen(error: Exception) -> str:
    """An error that should not be, in a line, and how to learn more."""
    return f"{told(error)}. {UNFORESEEN} garfield --debug and the same words show where it is from."


@contextmanager
def blamed_on(who: str) -> Iterator[None]:
    """Whatever a user's function raises becomes an InputError that names it and its line."""
    try:
        yield
    except (GarfieldError, Signal):
        raise
    except Exception as error:
        raise InputError(f"{who} failed: {told(error)}") from error


def place_of(error: BaseException) -> tuple[str, int] | None:
    """File and line where the user's code went wrong, in this error or what caused it."""
    at: BaseException | None = error
    found = None
    while at is not None:
        frames = [frame for frame in traceback.extract_tb(at.__traceback__) if _is_theirs(frame)]
        if frames:
            found = frames[-1].filename, frames[-1].lineno or 0
        at = at.__cause__
    return found


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if _is_theirs(frame)]
    where = (theirs or frames)[-1:]
    return "".join(f" ({frame.filename}:{frame.lineno})" for frame in where)


def _is_theirs(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith((_OURS, *_INSTALLED, "<"))
