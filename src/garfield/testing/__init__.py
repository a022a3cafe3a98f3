"""Hold an extension of your own to what is asked of ours.

    from garfield.testing import check_rule
    check_rule(my_rule)

Each function here takes what you have written, puts it through the checks that the rules,
attacks, adapters and transports of the library pass, and raises AssertionError with the
promise that was broken. They need no test framework; what they cannot know is what your
extension is meant to compute, so compare that with an obvious implementation of your own.

`check_file` does so for all that a file of yours registers, and says what fails where; it is what
`garfield check my.py` prints.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from garfield.testing.adapters import check_adapter
    from garfield.testing.attacks import check_attack
    from garfield.testing.files import check_file
    from garfield.testing.models import check_model
    from garfield.testing.rules import check_rule
    from garfield.testing.stages import check_stage
    from garfield.testing.transports import check_transport

__all__ = [
    "check_adapter", "check_attack", "check_file", "check_model", "check_rule", "check_stage",
    "check_transport",
]  # fmt: skip

_HOME = {
    "check_adapter": "garfield.testing.adapters",
    "check_attack": "garfield.testing.attacks",
    "check_file": "garfield.testing.files",
    "check_model": "garfield.testing.models",
    "check_rule": "garfield.testing.rules",
    "check_stage": "garfield.testing.stages",
    "check_transport": "garfield.testing.transports",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'garfield.testing' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
