"""How often a controller looks, decides and collects; the defaults are the thesis's (4.5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from garfield.core.bounds import Within
from garfield.core.config import check_numbers


@dataclass(frozen=True)
class Periods:
    """Seconds between two rounds of each kind."""

    monitor_s: Annotated[float, Within(0, above=True)] = 120.0
    """Seconds between two looks at what jobs have measured."""
    decide_s: Annotated[float, Within(0, above=True)] = 240.0
    """Seconds between two decisions about all jobs. Jobs start in between, where GPUs are idle."""
    collect_s: Annotated[float, Within(0, above=True)] = 240.0
    """Seconds between two looks for jobs that failed, or some of whose workers did."""

    def __post_init__(self) -> None:
        check_numbers(self)


class Timetable:
    """When something that is done every so often is due next. Times are arguments."""

    def __init__(self, period_s: float, last_s: float) -> None:
        """`last_s` is when it was done last, perhaps by a controller before this one."""
        self.period_s, self.last_s = period_s, last_s

    @property
    def due_s(self) -> float:
        """When it is due."""
        return self.last_s + self.period_s

    def is_due(self, at_s: float) -> bool:
        """Whether it is time; if so, it counts as done. What was missed is not made up for."""
        if at_s < self.due_s:
            return False
        self.last_s = at_s
        return True
