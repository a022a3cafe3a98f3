"""How the flags of a command are shown: in two columns, the first as wide in every panel.

The flags that turn something off (--no-…) are left out: with both, no room is left for words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts.help import ColumnSpec, DescriptionRenderer

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry
    from rich.console import Console, ConsoleOptions

_WIDEST = 27  # --learning-rate-decay FLOAT


def columns(
    console: Console, options: ConsoleOptions, entries: list[HelpEntry]
) -> tuple[ColumnSpec, ...]:
    """The columns of a panel of flags or of commands."""
    flags = any(entry.metavar for entry in entries)
    width = _WIDEST if flags else max(len(_names(entry)) for entry in entries)
    return (
        ColumnSpec(renderer=_names, style="cyclopts.name", min_width=width, max_width=width),
        ColumnSpec(renderer=DescriptionRenderer(), overflow="fold"),
    )


def _names(entry: HelpEntry) -> str:
    names = [*entry.positive_names, *entry.positive_shorts] or [entry.positional_label or ""]
    metavar = "" if entry.positional_label else entry.metavar or ""
    return f"{' '.join(names)} {metavar}".strip()
