"""One job of a local cluster: its record, its agreement, and its workers.

What it should have stands in its record. `act` takes the next steps towards that and is called
again and again, by whichever daemon there is: all that must be known for it is in the cluster's
database and in the job's own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from garfield.core.errors import CoordinationUnreachable
from garfield.elastic.control.garbage import JobHealth
from garfield.elastic.control.record import JobRecord, Phase
from garfield.elastic.control.reports import Reports, WorkerCapacity, with_reports
from garfield.elastic.job.coordination import BatchSize, JobView
from garfield.elastic.job.on_sqlite import SqliteCoordination
from garfield.elastic.local.database import ClusterDatabase, KeptJob, KeptWorker, WorkerState
from garfield.elastic.local.plan import WorkerSeen, steps
from garfield.elastic.local.processes import WorkerProcesses, ending_of

_log = logging.getLogger("garfield.elastic.local")
_LAST_BYTES = 2000


@dataclass
class _Worker:
    kept: KeptWorker
    ending: str = ""
    """How it was lost, for people."""
    named: bool = False

    @property
    def state(self) -> WorkerState:
        return self.kept.state


@dataclass
class JobWorkers:
    """A job that is not over, or whose processes are not."""

    kept: KeptJob
    database: ClusterDatabase
    processes: WorkerProcesses
    agreement: Path
    """The file of its agreement."""
    grace_s: float
    start: Callable[[JobWorkers, KeptWorker], None]
    """Starts the process of a worker that has a slot."""
    workers: dict[str, _Worker] = field(default_factory=dict)
    failed_at_end: list[str] = field(default_factory=list)
    """Workers that ended with an error after the training had come to its end."""

    def __post_init__(self) -> None:
        self.record: JobRecord = self.kept.record
        self.agreed = SqliteCoordination(self.agreement)
        self.view = JobView()
        self.reports: Reports = {}
        self._is_reachable = True

    @property
    def number(self) -> int:
        return self.kept.number

    @property
    def name(self) -> str:
        return self.kept.file.name

    def process_of(self, member: str) -> str:
        """The name of a worker's process and of its log."""
        return process_name(self.number, member)

    @property
    def slots(self) -> list[int]:
        """Slots that its workers have."""
        return [each.kept.slot for each in self.workers.values()]

    @property
    def alive(self) -> list[str]:
        """Members whose processes run."""
        return [member for member in self.workers if self.process_of(member) in self.processes]

    @property
    def is_training(self) -> bool:
        """Whether a worker has said so."""
        return any(each.get("state") == "training" for each in self.reports.values())

    @property
    def is_finishing(self) -> bool:
        """Whether its training has come to its end; its processes may have more to do."""
        return self.view.finished

    @property
    def is_deserted(self) -> bool:
        """Whether no worker is left, nor about to start, of those that it should have."""
        lost = self._in_state(WorkerState.LOST)
        return bool(lost and not self.alive and len(lost) >= self.record.job.workers > 0)

    def look(self) -> None:
        """Read what its workers agreed on and told; a batch that did not fit is noted.

        If that is impossible now, what was known before stays: nothing changes for this job.
        """
        try:
            self.view, self.reports = self.agreed.read(), self.agreed.reports()
        except CoordinationUnreachable as problem:
            if self._is_reachable:
                _log.warning("%s: %s It goes on as it is.", self.name, problem)
            self._is_reachable = False
            return
        self._is_reachable = True
        batch = self.view.batch
        if batch is not None and batch.most is not None and batch.most < self.record.job.batch:
            job = self.record.job.out_of_memory(2 * batch.most)
            self.record = replace(self.record, job=replace(job, batch=batch.most))

    def measure(self, began_s: float, capacity: WorkerCapacity) -> None:
        """Keep what its workers have measured."""
        most = None if self.view.batch is None else self.view.batch.most
        self.record = with_reports(
            self.record, self.reports, self.alive, began_s=began_s, most_batch=most,
            capacity=capacity,
        )  # fmt: skip

    def seen(self) -> JobHealth:
        """Its workers as garbage collection looks at them; who waits for a slot counts as alive."""
        here, lost = self._here(), self._in_state(WorkerState.LOST)
        awaited = max(0, self.record.job.workers - len(here) - len(lost))
        endings = [each.ending for each in lost]
        return JobHealth(len(here) + awaited, False, endings)

    def forget_lost(self) -> None:
        """Free the slots of workers that ended: it was decided what to do about them."""
        for each in self._in_state(WorkerState.LOST):
            self._remove(each)

    def forget_all(self) -> None:
        """Free all its slots: every process has ended."""
        for each in list(self.workers.values()):
            self._remove(each)

    def done(self, at_s: float) -> JobRecord:
        """Its record once its training has come to its end, and its processes have ended."""
        if self.failed_at_end:
            why = f"its training has ended, and then {'; '.join(self.failed_at_end)}"
            return self.record.ended(Phase.FAILED, at_s, why)
        return self.record.ended(Phase.FINISHED, at_s, "its training has ended")

    def note_end(self, member: str, code: int | None) -> None:
        """Note that a worker's process has ended."""
        worker = self.workers.get(member)
        if worker is None:
            return
        ending = ending_of(member, code, last_words(self.processes.log_of(self.process_of(member))))
        if self.view.finished and worker.state is WorkerState.IN:
            if code != 0:
                self.failed_at_end.append(ending)
            self._remove(worker)
        elif worker.state is WorkerState.LEAVING:
            self._remove(worker)
        else:
            worker.ending = ending
            self._set_state(worker, WorkerState.LOST)

    def act(self, free: Sequence[int]) -> int:
        """Take the next steps to what it should have; how many of the free slots it took."""
        wanted = 0 if not self.record.is_active else self.record.job.workers
        taken = 0
        if self.is_finishing and wanted:
            self._give_up_newcomers()
        else:
            next_ = steps(wanted, self._as_seen(), self.view.generation.members, len(free))
            for member in next_.leave:
                self._set_state(self.workers[member], WorkerState.LEAVING)
            if wanted:
                self._push_batch()
            started = self._start(free[: next_.start])
            taken = len(started)
            if started or next_.propose:
                self._propose([*next_.members, *started])
        self._end_leavers(wanted)
        return taken

    def adopt(self, worker: KeptWorker, *, ended: bool = False) -> None:
        """Take over a worker of the daemon before; forget it if it never came to be started.

        With `ended` its process is known to have, and `note_end` follows.
        """
        known = _Worker(worker)
        self.workers[worker.member] = known
        if ended or self.process_of(worker.member) in self.processes:
            return
        if worker.is_started and worker.state is not WorkerState.LEAVING:
            known.ending = ending_of(worker.member, None)
            self._set_state(known, WorkerState.LOST)
        else:
            self._remove(known)

    def close(self) -> None:
        self.agreed.close()

    def _here(self) -> list[str]:
        alive = set(self.alive)
        return [each.kept.member for each in self._in_state(WorkerState.IN)
                if each.kept.member in alive]  # fmt: skip

    def _in_state(self, state: WorkerState) -> list[_Worker]:
        return [each for each in self.workers.values() if each.state is state]

    def _as_seen(self) -> list[WorkerSeen]:
        alive = set(self.alive)
        return [
            WorkerSeen(member, each.state, member in alive, each.named, self._says(member))
            for member, each in self.workers.items()
        ]

    def _says(self, member: str) -> str:
        return str(self.reports.get(member, {}).get("state", ""))

    def _start(self, slots: Sequence[int]) -> list[str]:
        if not slots:
            return []
        started = self.database.add_workers(self.number, slots)
        for worker in started:
            self.workers[worker.member] = _Worker(worker)
        for worker in started:
            try:
                self.start(self, worker)
            except BaseException:
                for each in started:
                    if self.process_of(each.member) not in self.processes:
                        self._remove(self.workers[each.member])
                raise
            self.database.set_started(worker)
        return [worker.member for worker in started]

    def _propose(self, members: Sequence[str]) -> None:
        """If members have just proposed another one themselves, the next call tries again."""
        if self.agreed.propose(members, after=self.view.generation.number):
            self.view = self.agreed.read()
            for member in members:
                self.workers[member].named = True

    def _push_batch(self) -> None:
        """Tell workers the batch that was decided, with the time from which it holds."""
        known, size = self.view.batch, self.record.job.batch
        if known is not None and known.allowed == size:
            return
        since_us = time.time_ns() // 1000
        if known is not None:
            since_us = max(since_us, known.since_us + 1)
        self.agreed.set_batch(BatchSize(size, since_us))

    def _give_up_newcomers(self) -> None:
        """Let go of workers that were about to join a training which has come to its end."""
        for member in self._here():
            if self._says(member) in ("", "waiting"):
                self._set_state(self.workers[member], WorkerState.LEAVING)

    def _end_leavers(self, wanted: int) -> None:
        for each in self._in_state(WorkerState.LEAVING):
            member, process = each.kept.member, self.process_of(each.kept.member)
            if process in self.processes:
                # who trains leaves by itself between two steps, if others go on
                by_itself = wanted > 0 and self._says(member) == "training"
                ask_after_s = self.grace_s if by_itself else 0.0
                self.processes.end(process, self.grace_s, ask_after_s=ask_after_s)

    def _set_state(self, worker: _Worker, state: WorkerState) -> None:
        self.database.set_state(worker.kept, state)
        worker.kept = replace(worker.kept, state=state)

    def _remove(self, worker: _Worker) -> None:
        self.database.remove_worker(worker.kept)
        del self.workers[worker.kept.member]


def process_name(job: int, member: str) -> str:
    """The name of a worker's process, and of its log."""
    return f"{job}-{member}"


def last_words(log: Path) -> list[str]:
    """The last line that a worker printed, if it printed any."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LAST_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return []
    return [line.strip()[:200] for line in lines if line.strip()][-1:]
