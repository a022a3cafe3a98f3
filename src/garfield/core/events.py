"""Events: what the processes of a run tell, and who takes it."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Event: TypeAlias = Mapping[str, Any]
"""A flat record, fit for a line of JSON; `event` says of what kind it is."""

Sink: TypeAlias = Callable[[Event], None]
"""Takes the events of a run, one by one."""
