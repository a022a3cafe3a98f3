"""One job's workers, brought to what was decided: without processes, against its real agreement."""

import sys
import time
from dataclasses import replace

import pytest

from garfield.elastic.job.coordination import BatchSize
from garfield.elastic.local.database import ClusterDatabase, WorkerState
from garfield.elastic.local.job_file import JobFile
from garfield.elastic.local.job_workers import JobWorkers, last_words
from garfield.elastic.local.processes import WorkerProcesses, ending_of
from garfield.elastic.policy import Share


class Running(WorkerProcesses):
    """Processes that are only said to run."""

    def __init__(self, directory):
        super().__init__(directory)
        self.ended_with_signal = []

    def begin(self, job, worker):
        self._running[job.process_of(worker.member)] = None

    def stop(self, job, member):
        del self._running[job.process_of(member)]

    def end(self, name, grace_s, *, ask_after_s=0.0):
        self.ended_with_signal.append((name, ask_after_s))


@pytest.fixture
def job(tmp_path):
    database = ClusterDatabase(tmp_path / "cluster.sqlite", create=True)
    database.slots = 4
    kept = database.submit(JobFile("a", (sys.executable,), str(tmp_path)))
    processes = Running(tmp_path / "processes")
    made = JobWorkers(kept, database, processes, tmp_path / "0.sqlite", 9.0, processes.begin)
    yield made
    made.close()
    database.close()


def give(job, workers, batch=64):
    job.record = job.record.given(Share(workers, batch), 1.0)


def report(job, member, state):
    job.agreed.report(member, {"state": state})
    job.look()


def test_a_job_gets_its_slots_a_generation_and_its_batch(job):
    give(job, 2)
    assert job.act([1, 3]) == 2
    assert (job.slots, job.alive) == ([1, 3], ["w1", "w2"])
    agreed = job.agreed.read()
    assert (agreed.generation.members, agreed.batch.size) == (("w1", "w2"), 64)
    assert job.act([0]) == 0
    assert job.agreed.read().generation.number == 1


def test_a_changed_batch_is_told_with_a_later_time(job):
    give(job, 1)
    job.act([0])
    before = job.agreed.read().batch
    give(job, 1, 128)
    job.look()
    job.act([])
    after = job.agreed.read().batch
    assert (after.size, after.since_us > before.since_us) == (128, True)


def test_a_batch_that_did_not_fit_is_kept_small_whatever_is_decided(job):
    give(job, 1, 128)
    job.act([0])
    job.agreed.set_batch(BatchSize(64, time.time_ns() // 1000, most=64))  # as a worker does
    job.look()
    assert (job.record.job.batch, job.record.job.oom_batch) == (64, 128)
    give(job, 1, 128)
    job.look()
    job.act([])
    assert job.agreed.read().batch.allowed == 64
    assert job.record.job.batch == 64


def test_one_who_leaves_is_left_out_and_waited_for_as_long_as_it_trains(job):
    give(job, 2)
    job.act([0, 1])
    report(job, "w2", "training")
    give(job, 1)
    job.act([])
    assert job.agreed.read().generation.members == ("w1",)
    assert job.processes.ended_with_signal == [("0-w2", 9.0)]
    assert job.slots == [0, 1]  # until its process has ended
    job.processes.stop(job, "w2")
    job.note_end("w2", 0)
    assert job.slots == [0]


def test_one_who_never_trained_is_asked_to_go_at_once(job):
    give(job, 2)
    job.act([0, 1])
    give(job, 1)
    job.act([])
    assert job.processes.ended_with_signal == [("0-w2", 0.0)]


def test_newcomers_are_let_go_once_the_training_has_ended(job):
    give(job, 2)
    job.act([0, 1])
    report(job, "w1", "training")
    job.agreed.finish()
    job.look()
    job.act([2])
    assert job.processes.ended_with_signal == [("0-w2", 0.0)]
    assert job.slots == [0, 1]


def test_a_lost_worker_keeps_its_slot_until_it_is_collected(job):
    give(job, 2)
    job.act([0, 1])
    job.processes.stop(job, "w1")
    job.note_end("w1", 137)
    seen = job.seen()
    assert (seen.alive, seen.endings) == (1, ["w1: was killed by signal 9"])
    job.act([2, 3])
    assert (job.slots, job.agreed.read().generation.number) == ([0, 1], 1)
    job.forget_lost()
    give(job, 1)
    job.act([0, 2, 3])
    assert job.agreed.read().generation.members == ("w2",)


def test_the_next_daemon_takes_over_what_the_last_one_kept(job):
    give(job, 3)
    job.act([0, 1, 2])
    first, second, third = job.database.workers()
    job.processes.stop(job, second.member)
    job.workers.clear()
    job.database.remove_worker(third)
    (never,) = job.database.add_workers(0, [3])
    for worker in (first, replace(second, is_started=True), never):
        job.adopt(worker)
    assert job.alive == ["w1"]
    assert {each.kept.member: each.state for each in job.workers.values()} == {
        "w1": WorkerState.IN, "w2": WorkerState.LOST,
    }  # fmt: skip
    assert [each.member for each in job.database.workers()] == ["w1", "w2"]


def test_a_process_that_cannot_be_started_leaves_no_slot_taken(job):
    def refuse(*_):
        raise OSError("too many")

    job.start = refuse
    give(job, 2)
    with pytest.raises(OSError, match="too many"):
        job.act([0, 1])
    assert job.slots == []
    assert job.database.workers() == []


def test_endings_are_told_for_people(tmp_path):
    log = tmp_path / "log"
    assert last_words(log) == []
    log.write_bytes(b"one\nValueError: no \xff data\n\n")
    told = ending_of("w1", 1, last_words(log))
    assert told == "w1: exit code 1 (ValueError: no � data)"
    assert ending_of("w1", 143) == "w1: was killed by signal 15"
    assert ending_of("w1", None) == "w1: ended, nobody knows how"
