"""Who has a model measured, how long, and what is made of a measurement that does not fit."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from garfield.core.errors import RequestRefused
from garfield.split.server import memory
from garfield.split.server.memory import FAR_BATCH, Measured, MemoryBook, Rehearsal
from garfield.split.server.messages import Kind, OtherSideGone
from garfield.split.server.workers import Worker, WorkerLost
from garfield.split.wire import Refusal

MiB = 1 << 20
REHEARSAL = Rehearsal(("a model",), {}, (3, 32, 32), 10 * MiB)


class Queue:
    """One that grants whatever is asked for."""

    largest_bytes = 1000 * MiB

    async def granted(self, base, per_sample, b_max):
        return base

    def release(self, grant):
        pass


def measuring(monkeypatch, peak):
    """Have measurements peak at that many bytes for a batch, and run in no less."""

    async def tried(grant, rehearsal, batches, silent_s):
        peaks = tuple((batch, peak(batch)) for batch in batches)
        if max(bytes_ for _, bytes_ in peaks) > grant:
            raise Refusal.OUT_OF_MEMORY.error("too little")
        return Measured(MiB, peaks, 4 * 3 * 32 * 32, (1,), {})

    monkeypatch.setattr(memory, "_tried", tried)


@pytest.mark.parametrize("least", [0, 300 * MiB])
def test_a_model_whose_far_batch_fits_nowhere_is_known_by_its_small_ones(monkeypatch, least):
    """Weights, from which samples take over: 128 of them take 1224 MiB."""

    def peak(batch):
        return max(least, (200 + 8 * batch) * MiB)

    measuring(monkeypatch, peak)
    measured = asyncio.run(MemoryBook(Queue(), 60.0).of(REHEARSAL))
    for batch in (8, 20, 32):
        assert peak(batch) <= measured.line.predict(batch) <= 1.1 * peak(batch)


def test_what_is_known_of_a_batch_that_does_not_fit_makes_the_line_no_flatter(monkeypatch):
    measuring(monkeypatch, lambda batch: 300 * MiB if batch <= 32 else 2000 * MiB)
    measured = asyncio.run(MemoryBook(Queue(), 60.0).of(REHEARSAL))
    assert measured.line.predict(FAR_BATCH) >= Queue.largest_bytes
    assert measured.line.predict(32) >= 300 * MiB


def test_a_model_that_does_not_fit_at_all_is_refused(monkeypatch):
    measuring(monkeypatch, lambda batch: 2000 * MiB)
    with pytest.raises(RequestRefused, match="do not run in 999 MiB"):
        asyncio.run(MemoryBook(Queue(), 60.0).of(REHEARSAL))


# -- who waits for it -------------------------------------------------------------------------


class FullQueue(Queue):
    """One that grants nothing; who waits in it, and who has gone."""

    def __init__(self):
        self.waiting = self.gone = 0

    async def granted(self, base, per_sample, b_max):
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1
            self.gone += 1


async def begun(book, queue):
    """Somebody who asks, and waits by now."""
    asking = asyncio.ensure_future(book.of(REHEARSAL))
    while not queue.waiting:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    return asking


async def left(asking):
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    for _ in range(5):  # in which whatever was called off may end
        await asyncio.sleep(0)


def test_a_measurement_is_called_off_when_the_last_who_waits_for_it_goes():
    async def main():
        queue = FullQueue()
        book = MemoryBook(queue, 60.0)
        first, second = await begun(book, queue), await begun(book, queue)
        assert queue.waiting == 1  # for both
        await left(first)
        assert queue.waiting == 1
        await left(second)
        assert (queue.waiting, queue.gone) == (0, 1)

    asyncio.run(main())


def test_who_asks_while_a_measurement_is_called_off_has_one_of_its_own():
    async def main():
        queue = FullQueue()
        book = MemoryBook(queue, 60.0)
        first = await begun(book, queue)
        first.cancel()
        await asyncio.sleep(0)
        second = asyncio.ensure_future(book.of(REHEARSAL))
        for _ in range(5):
            await asyncio.sleep(0)
        assert (queue.waiting, queue.gone) == (1, 1)
        assert not second.done()
        await left(second)

    asyncio.run(main())


# -- workers that do not answer ---------------------------------------------------------------


class Memory:
    """Of a worker; nobody limits it."""

    used_bytes = peak_bytes = kills = 0

    def forget_peak(self):
        pass

    def limit(self, most_bytes):
        pass


def worker(side):
    return Worker("extract-cpu0-0", "cpu0", Memory(), side, 1, 0)


def test_a_worker_that_says_nothing_while_it_measures_is_lost_after_its_time(monkeypatch):
    monkeypatch.setattr("garfield.split.server.workers.ABORT_S", 0.01)

    class Silent:
        async def send(self, message):
            pass

        async def receive(self):
            await asyncio.Event().wait()

    async def main():
        silent = worker(Silent())
        grant = SimpleNamespace(worker=silent, most_bytes=MiB)
        with pytest.raises(WorkerLost, match=r"silent for 0\.01 s"):
            await memory._tried(grant, REHEARSAL, (8,), 0.01)
        assert silent.stuck

    asyncio.run(main())


def test_a_worker_that_dies_between_two_batches_is_one_that_was_lost():
    class Dying:
        sent = 0

        async def send(self, message):
            self.sent += 1
            if self.sent > 1:
                raise OtherSideGone("it has ended")

        async def receive(self):
            return SimpleNamespace(kind=Kind.MARK)

    async def main():
        dying = worker(Dying())
        grant = SimpleNamespace(worker=dying, most_bytes=MiB)
        with pytest.raises(WorkerLost, match="it has ended"):
            await memory._tried(grant, REHEARSAL, (8,), 60.0)
        assert dying.lost

    asyncio.run(main())
