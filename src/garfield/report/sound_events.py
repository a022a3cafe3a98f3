"""Which events of a file can be summed up: those whose fields are of the kinds that nodes write.

A file may have been cut, edited, or written by another version. What does not fit is passed
over, as a line that is no JSON at all is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from garfield.core.events import Event

Check: TypeAlias = Callable[[Any], bool]


def is_sound(event: Event) -> bool:
    """Whether the event has all that its kind needs, and nothing that is of another type."""
    needed = {*_NEEDED.get(event["event"], ()), *(n for f in event for n in _BESIDE.get(f, ()))}
    if any(field not in event for field in needed):
        return False
    return all(_FIELDS[field](value) for field, value in event.items() if field in _FIELDS)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2.0**63


def _real(value: Any) -> bool:
    """A number that need not be finite."""
    return isinstance(value, float) or _number(value)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _by_name(check: Check) -> Check:
    return lambda value: isinstance(value, Mapping) and all(map(check, value.values()))


def _fault(value: Any) -> bool:
    return isinstance(value, Mapping) and _count(value.get("times")) and _text(value.get("detail"))


def _silence(value: Any) -> bool:
    """A text alone, where a version wrote it that knew no reasons."""
    return _text(value) or (
        isinstance(value, Mapping) and _text(value.get("reason")) and _text(value.get("detail"))
    )


def _pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_count, value))


_SUMS = ("bytes_sent", "bytes_received")
_FIELDS: dict[str, Check] = {
    **dict.fromkeys(("node", "error"), _text),
    **dict.fromkeys(("step", "gradients", "computed", *_SUMS), _count),
    **dict.fromkeys(("time_s", "communication_s", "aggregation_s", "compute_s"), _number),
    "accuracy": _number,
    "score": _optional(_real),
    "metric": _text,
    "larger_is_better": lambda value: isinstance(value, bool),
    **dict.fromkeys(("loss", "variance_ratio"), _optional(_real)),
    "variance_held": _optional(lambda value: isinstance(value, bool)),
    "trusted": _optional(_texts),
    "set_aside": _optional(_by_name(_text)),
    "silent": _optional(_by_name(_silence)),
    "filled": _by_name(_number),
    "faults": _optional(_by_name(_by_name(_fault))),
    "filters": _optional(_by_name(_pair)),
}
_BESIDE: dict[str, tuple[str, ...]] = {
    "accuracy": ("node", "step"),
    "score": ("node", "step", "metric", "larger_is_better"),
    "bytes_sent": ("node", "bytes_received"),
    "compute_s": ("node", "computed"),
    "variance_ratio": ("variance_held",),
}
"""What has to stand beside a field, whatever the kind of event."""
_NEEDED: dict[str, tuple[str, ...]] = {
    "step": ("node", "step", "time_s", "communication_s", "aggregation_s"),
    "worker": ("node", "step"),
    "resumed": ("step",),
    "done": ("node", "step"),
    "diverged": ("node", "step", "error"),
    "failed": ("node", "error"),
}
