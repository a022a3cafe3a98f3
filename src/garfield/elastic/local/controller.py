"""What the daemon does again and again for all jobs of its cluster.

    take in      jobs that were submitted or cancelled, processes that ended
    look         at what jobs measured, and for those that failed, each in its period
    ask          the policy: in each round, and when a job has come or gone
    act          on what each job should have now: step by step until it has

What was decided is in the database before anything is done about it, so a daemon that is killed
leaves jobs that train on, and the next one goes on from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from garfield.core.errors import CoordinationUnreachable
from garfield.elastic.control.decider import Decider
from garfield.elastic.control.garbage import Verdict, examined
from garfield.elastic.control.periods import Timetable
from garfield.elastic.control.record import JobRecord, Phase
from garfield.elastic.local.database import ClusterDatabase, KeptJob
from garfield.elastic.local.events import ClusterEvents
from garfield.elastic.local.job_workers import JobWorkers
from garfield.elastic.local.processes import WorkerProcesses
from garfield.elastic.local.settings import LocalSettings
from garfield.elastic.policy.decision_log import Asked
from garfield.elastic.policy.snapshot import Node

_log = logging.getLogger("garfield.elastic.local")
_ROUNDS = ("monitor", "decide", "collect")
_START_AGAIN_S = 5.0  # after a worker could not be started


class Controller:
    """All jobs that are not over, and what is decided about them."""

    def __init__(
        self,
        settings: LocalSettings,
        database: ClusterDatabase,
        processes: WorkerProcesses,
        events: ClusterEvents,
        job_of: Callable[[KeptJob], JobWorkers],
    ) -> None:
        """`job_of` makes what a kept job needs to have workers."""
        self._settings, self._database, self._processes = settings, database, processes
        self._events, self._job_of = events, job_of
        self._decider = Decider(settings.policy_text, events.record, dry_run=settings.dry_run)
        self._rounds = {name: self._timetable(name) for name in _ROUNDS}
        self.jobs: dict[int, JobWorkers] = {}
        self._last = -1  # the number of the last job that was taken in
        self._saved: dict[int, JobRecord] = {}
        self._saved_rounds: dict[str, str] = {}
        self._endings: dict[str, int | None] = {}
        self._came = self._went = True
        """Whether a job has come, or a worker gone, since the policy was last asked."""
        self._starts_again_s = 0.0

    def adopt(self) -> None:
        """Take over the jobs of the daemon before, and those of its workers that still run."""
        ended = self._processes.adopt()
        workers = self._database.workers()
        with_workers = {worker.job for worker in workers}
        for kept in self._database.jobs():
            self._last = kept.number
            if kept.record.is_active or kept.number in with_workers:
                self._add(kept)
        for worker in workers:
            job = self.jobs[worker.job]
            name = job.process_of(worker.member)
            job.look()
            job.adopt(worker, ended=name in ended)
            if name in ended:
                job.note_end(worker.member, ended[name])
        if len(self._processes):
            _log.info("Adopted %d workers that went on training.", len(self._processes))

    def tick(self) -> None:
        """Do all that is due; CoordinationUnreachable if the database cannot be used now."""
        at_s = self._database.now_s()
        self._take_in(at_s)
        for job in self.jobs.values():
            job.look()
            self._events.tell_training(job, at_s)
        self._note_endings()
        if self._rounds["monitor"].is_due(at_s):
            self.measure(self.jobs.values())
        self._settle(at_s)
        if self._rounds["collect"].is_due(at_s):
            self._collect(self.jobs.values(), at_s)
        else:  # nothing is to be waited for where nobody is left
            self._collect([job for job in self.jobs.values() if job.is_deserted], at_s)
        self._decide(at_s)
        self._save()
        self._act(at_s)

    def measure(self, jobs: Iterable[JobWorkers]) -> None:
        """Keep what jobs have measured."""
        for job in jobs:
            if job.record.job.workers:
                job.measure(self._database.began_s, self._settings.capacity)

    def _take_in(self, at_s: float) -> None:
        for kept in self._database.jobs(after=self._last):
            self._add(kept)
            self._came = True
        for number in self._database.cancelled() & self.jobs.keys():
            job = self.jobs[number]
            if job.record.is_active:
                job.record = job.record.ended(Phase.CANCELLED, at_s, "cancelled")
                self._went = True

    def _add(self, kept: KeptJob) -> None:
        self._last = max(self._last, kept.number)
        job = self.jobs[kept.number] = self._job_of(kept)
        if kept.record.started_s is None and kept.record.is_active:
            self._events.tell(job, "submitted", kept.record.submitted_s)

    def _note_endings(self) -> None:
        self._endings |= self._processes.ended()
        while self._endings:  # one by one: none is forgotten if the database cannot be reached
            name, code = next(iter(self._endings.items()))
            number, _, member = name.partition("-")
            job = self.jobs.get(int(number))
            if job is not None:
                job.look()  # it may have ended because the training has
                job.note_end(member, code)
            del self._endings[name]
            self._went = True

    def _settle(self, at_s: float) -> None:
        """End the records of jobs that are done, and let go of those whose processes are."""
        for number, job in list(self.jobs.items()):
            if job.record.is_active and job.is_finishing and not job.alive:
                self.measure([job])
                job.record = job.done(at_s)
                self._went = True
            if not job.record.is_active and not job.alive:
                self._database.save([job.record])
                job.forget_lost()
                self._events.tell_workers(job, at_s)
                self._events.tell_end(job)
                job.close()
                del self.jobs[number]

    def _collect(self, jobs: Iterable[JobWorkers], at_s: float) -> None:
        """Garbage collection (thesis, 4.4.3)."""
        for job in jobs:
            if not job.record.job.workers or job.is_finishing or not job.record.is_active:
                continue
            self.measure([job])
            retries = self._settings.retries
            verdict, job.record = examined(job.record, job.seen(), at_s, retries=retries)
            if verdict is not Verdict.HEALTHY:
                why = job.record.why
                _log.warning("%s: %s", job.name, why)
                self._events.tell(job, "collected", at_s, verdict=verdict.value, why=why)
                self._went = True
            job.forget_lost()

    def _decide(self, at_s: float) -> None:
        jobs = {
            job.number: job
            for job in self.jobs.values()
            if job.record.is_active and not job.is_finishing
        }
        is_round = self._rounds["decide"].is_due(at_s)
        waits = any(not job.record.job.workers for job in jobs.values())
        asks = is_round or self._came or (self._went and waits)
        self._came = self._went = False
        if not jobs or not asks:
            return
        asked: Asked = "decide" if is_round else "admit"
        finishing = sum(len(job.alive) for job in self.jobs.values() if job.is_finishing)
        nodes = [Node("here", max(0, self._settings.slots - finishing))]
        try:
            changes = self._decider.ask(asked, [job.record for job in jobs.values()], nodes, at_s)
        except Exception:  # of a user's own policy: jobs go on as they are
            _log.exception("The policy has taken no decision that can be followed.")
            return
        for change in changes:
            jobs[change.after.job.arrival].record = change.after
            if change.rescales or change.sets_batch:
                _log.info("%s: %s", change.name, change.share.reason)

    def _save(self) -> None:
        changed = [
            job.record for job in self.jobs.values() if self._saved.get(job.number) != job.record
        ]
        if changed:
            self._database.save(changed)
            self._saved |= {record.job.arrival: record for record in changed}
        rounds = {name: str(each.last_s) for name, each in self._rounds.items()}
        if rounds != self._saved_rounds:
            self._database.set_facts(rounds)
            self._saved_rounds = rounds

    def _act(self, at_s: float) -> None:
        """Do what was decided: first come, first served where slots are not free yet."""
        for job in sorted(self.jobs.values(), key=lambda each: each.number):
            try:
                job.act(self._free() if at_s >= self._starts_again_s else [])
            except CoordinationUnreachable as problem:
                _log.warning("%s: %s", job.name, problem)
            except OSError as problem:  # too many processes, or no room on the disk
                _log.warning("%s: a worker cannot be started: %s.", job.name, problem)
                self._starts_again_s = at_s + _START_AGAIN_S
            self._events.tell_workers(job, at_s)

    def _free(self) -> list[int]:
        taken = {slot for job in self.jobs.values() for slot in job.slots}
        free = [slot for slot in range(self._settings.slots) if slot not in taken]
        return free[: max(0, self._settings.slots - len(taken))]

    def _timetable(self, name: str) -> Timetable:
        period_s = getattr(self._settings.periods, f"{name}_s")
        return Timetable(period_s, float(self._database.fact(name) or self._database.now_s()))
