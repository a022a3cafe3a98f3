"""One drill: fault after fault on a stage, each followed by the question whether all goes on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from garfield.launch.drill.checks import Broken, Violation
from garfield.launch.drill.schedule import Fault, Schedule

ENDLESS = 10**7
"""Steps of a run that is ended by us."""
STEPS_MORE = 20
"""How far the run goes when it is resumed for the last time."""


class Stage(AbstractContextManager["Stage"], Protocol):
    """A run that faults can be done to. Leaving it ends whatever is left of it."""

    def start(self) -> Sequence[Violation]:
        """Start the run, and wait until all its nodes go on."""
        ...

    def step(self) -> int:
        """How far the run has come."""
        ...

    def strike(self, fault: Fault) -> Sequence[Violation]:
        """Do it, leave it like that for its time, undo it, and wait until all nodes go on."""
        ...

    def finish(self) -> Sequence[Violation]:
        """End the run in good order, go on from its checkpoints to a last step, and look around."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What became of a run after one fault, or at its start or end."""

    what: str
    step: int
    """The run's, when all went on again."""
    took_s: float
    violations: tuple[Violation, ...] = ()


@dataclass
class DrillReport:
    """What was done, and what did not hold."""

    schedule: Schedule
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def violations(self) -> list[Violation]:
        return [each for outcome in self.outcomes for each in outcome.violations]

    @property
    def counts(self) -> Counter[str]:
        """How often each promise was broken."""
        return Counter(each.broken.value for each in self.violations)

    @property
    def struck(self) -> int:
        """How many faults were done: a drill whose run hangs is over before the last."""
        planned = {str(fault) for fault in self.schedule.faults}
        return sum(outcome.what in planned for outcome in self.outcomes)

    @property
    def held(self) -> bool:
        return not self.violations

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": self.schedule.stage.value, "seed": self.schedule.seed, "held": self.held,
            "faults": self.struck, "violations": dict(self.counts),
            "outcomes": [
                {"what": o.what, "step": o.step, "took_s": round(o.took_s, 2),
                 "violations": [{"broken": v.broken.value, "detail": v.detail}
                                for v in o.violations]}
                for o in self.outcomes
            ],
        }  # fmt: skip


def rehearse(
    schedule: Schedule, stage: Stage, tell: Callable[[Outcome], None] = lambda outcome: None
) -> DrillReport:
    """Run a drill to its end, or until the run neither goes on nor ends: that would be all."""
    report = DrillReport(schedule)

    def done(what: str, act: Callable[[], Sequence[Violation]]) -> bool:
        began = time.monotonic()
        violations = tuple(act())
        outcome = Outcome(what, stage.step(), time.monotonic() - began, violations)
        report.outcomes.append(outcome)
        tell(outcome)
        return not any(each.broken is Broken.HANG for each in violations)

    with stage:
        if not done("start", stage.start):
            return report
        for fault in schedule.faults:
            if not done(str(fault), lambda fault=fault: stage.strike(fault)):  # type: ignore[misc]
                return report
        done("stop, and go on to the end", stage.finish)
    return report
