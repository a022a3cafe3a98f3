"""A run that goes on for ever while no time passes: told from one that is only busy.

The clock is virtual, so that a time-out ends no such run: nodes that ask again and again and are
answered at once would keep a search waiting for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.adversary.case import Case

MOMENT = 0.1
"""Less than this share of a time-out is no progress."""
PULLS, TURNS = 50, 500
"""How often a node may ask, and is given a turn, within a moment, for each step of the run and ten
more: whole runs fit into a moment, where the network is fast."""


class Standstill(Exception):  # noqa: N818 (what a case does, not an error of ours)
    """Somebody asks for ever, and no time passes."""


class Progress:
    """Counts what is done within one moment of virtual time."""

    def __init__(self, case: Case, clock: Callable[[], float]) -> None:
        self._clock, self._moment_s = clock, MOMENT * case.timeout_s
        self._nodes, self._steps = len({*case.servers, *case.workers}), case.steps + 10
        self._since_s, self._turns, self._pulls = 0.0, 0, Counter[str]()

    def turn(self) -> None:
        """Some node goes on."""
        self._look()
        self._turns += 1
        if self._turns > TURNS * self._steps * self._nodes:
            raise Standstill(f"{self._turns} turns, and the time is still {self._clock():.6f} s")

    def pull(self, name: str) -> None:
        """That node asks its peers for something."""
        self._look()
        self._pulls[name] += 1
        if self._pulls[name] > PULLS * self._steps:
            raise Standstill(
                f"{name} has asked {self._pulls[name]} times, and the time is still "
                f"{self._clock():.6f} s"
            )

    def _look(self) -> None:
        now_s = self._clock()
        if now_s - self._since_s > self._moment_s:
            self._since_s, self._turns = now_s, 0
            self._pulls.clear()
