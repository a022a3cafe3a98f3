"""What whoever runs jobs decides, wherever they run: no process, no cluster, no clock.

    record      what is kept of a job from its submission to its end, and what changes it
    reports     what workers told, as measurements of their job
    decider     asks the policy, keeps each decision with its snapshot, says what changes for whom
    garbage     jobs that failed, or some of whose workers did (thesis, 4.4.3)
    periods     how often each of these is done

A daemon (`elastic/local`) or an operator looks at its workers, passes on what it saw, and does what
comes back. All times are seconds of its own clock, which must go on where it was when it comes
back after a failure.
"""

from garfield.elastic.control.decider import Decider, JobChange
from garfield.elastic.control.garbage import JobHealth, Verdict, examined
from garfield.elastic.control.periods import Periods, Timetable
from garfield.elastic.control.record import JobRecord, Phase, record_of, submitted
from garfield.elastic.control.reports import WorkerCapacity, with_reports

__all__ = [
    "Decider",
    "JobChange",
    "JobHealth",
    "JobRecord",
    "Periods",
    "Phase",
    "Timetable",
    "Verdict",
    "WorkerCapacity",
    "examined",
    "record_of",
    "submitted",
    "with_reports",
]  # fmt: skip
