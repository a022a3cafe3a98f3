"""The consoles that results and notes are printed on.

Nothing that is printed is markup: a user's directory may be named x[/b]. What is no terminal, a
file or a pipe, has no edge: tables there are as wide as what they hold, whatever $COLUMNS says.
"""

from __future__ import annotations

from rich.console import Console

_NO_EDGE = 100_000


def console(*, stderr: bool = False) -> Console:
    """Standard output, or standard error."""
    out = Console(stderr=stderr, highlight=False, markup=False)
    if not out.is_terminal:
        out = Console(stderr=stderr, highlight=False, markup=False, width=_NO_EDGE)
    return out
