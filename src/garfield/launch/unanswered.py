"""For how long processes have not given a sign of life, though they were asked for one.

A process that is busy answers all the same, from a thread of its own; one that is frozen does
not. Time that the launcher itself was stopped (Ctrl-Z) is not held against anybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

TURN_S = 1.0
"""How often they are asked."""
ANSWER_S = 5.0
"""A process of a busy machine answers in less."""


class Unanswered:
    """Asks processes now and then, and adds up for how long each has not answered."""

    def __init__(
        self, probe: Callable[[str], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`probe` asks a process by name, and says whether it answered the time before."""
        self._probe, self._clock = probe, clock
        self._asked_at = clock()
        self._silent_s: dict[str, float] = {}

    def for_s(self, names: Sequence[str]) -> float:
        """For how many seconds none of them has answered; asks again if it is time to."""
        passed_s = self._clock() - self._asked_at
        if passed_s >= TURN_S:
            self._asked_at += passed_s
            for name in names:
                before_s = self._silent_s.get(name, 0.0)
                answered = self._probe(name)
                self._silent_s[name] = 0.0 if answered else before_s + min(passed_s, 2 * TURN_S)
        return min(self._silent_s.get(name, 0.0) for name in names)
