"""Settings of a training from a file: those of a run that was kept, or one that a user wrote."""

from __future__ import annotations

from pathlib import Path

from garfield.apps.own_parts import anchored
from garfield.apps.settings import Settings, from_toml
from garfield.core.config import flattened, read_toml
from garfield.runs.user_files import without_files


def read_settings(path: Path) -> Settings:
    """Settings of a file, and the user's own files that it names: paths start beside it."""
    from garfield.apps.settings import all_settings

    content = without_files(read_toml(path), path.parent)
    return from_toml(anchored(flattened(content, all_settings()), path.parent))
