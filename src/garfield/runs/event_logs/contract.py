"""What a log of a run does, and how an event becomes numbers at a place on a curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from garfield.core.events import Event

_PLACES = ("step", "round")
"""The fields that say how far a run was, whichever an event has."""


class EventLog(Protocol):
    """Takes the events of one run."""

    def take(self, event: Event) -> None:
        """Log an event."""

    def close(self, events: Callable[[], Sequence[Event]]) -> None:
        """End the log; `events` reads all that was recorded."""

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """Log what came of the run; called once after `close`, unless the run broke off."""


def place_of(event: Event) -> int | None:
    """The step or round that an event is of; None if it tells of none."""
    return next((event[name] for name in _PLACES if isinstance(event.get(name), int)), None)


def curves(event: Event) -> dict[str, float]:
    """The fields that are worth a curve: finite numbers, but for where and of which try they are.

    Workers tell of themselves alone, by sums, and there may be hundreds: their events have none.
    """
    if event["event"] == "worker" or place_of(event) is None:
        return {}
    return numbers(event)


def numbers(fields: Mapping[str, Any]) -> dict[str, float]:
    """Those of some fields that are finite numbers, by name."""
    return {
        name: float(value)
        for name, value in fields.items()
        if name not in _PLACES
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
    }
