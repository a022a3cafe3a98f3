"""What shows a training while it goes on."""

from __future__ import annotations

import time

from rich.console import Console

from garfield.apps.settings import Settings
from garfield.core.events import Event
from garfield.launch.training import roster_of
from garfield.launch.training import title as title_of
from garfield.report.console import console
from garfield.report.live import LiveDisplay, Status, display_for


def display_of(
    settings: Settings, title: str | None = None, err: Console | None = None
) -> LiveDisplay:
    """What shows a run on standard error, or on that console, as fits a terminal or a file."""
    status = Status(roster_of(settings), settings.steps)
    err = err or console(stderr=True)
    return display_for(status, title or title_of(settings), err, time.monotonic)


class QuietDisplay:
    """Shows nothing: the run's directory has it all."""

    def __enter__(self) -> QuietDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def take(self, event: Event) -> None:
        pass

    def say(self, text: str) -> None:
        pass
