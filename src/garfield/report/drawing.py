"""matplotlib, when there is something to draw: it is an extra, and slow to import."""

from __future__ import annotations

from typing import Any

from garfield.core.errors import MissingDependency


def matplotlib() -> Any:
    """The library, its figures, colours and patches at hand."""
    try:
        import matplotlib as library
        import matplotlib.colors
        import matplotlib.figure
        import matplotlib.patches
    except ImportError:
        raise MissingDependency(
            "Pictures are drawn with matplotlib, which is not installed. "
            "Install it with: pip install 'garfield[plots]'"
        ) from None
    return library
