"""Who has a model measured, how long, and what is made of a measurement that does not fit."""

from __future__ import annotations

import asyncio

import pytest

from garfield.core.errors import RequestRefused
from garfield.split.server import memory
from garfield.split.server.memory import FAR_BATCH, Measured, MemoryBook, Rehearsal
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

    async def tried(grant, rehearsal, batches):
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
    measured = asyncio.run(MemoryBook(Queue()).of(REHEARSAL))
    for batch in (8, 20, 32):
        assert peak(batch) <= measured.line.predict(batch) <= 1.1 * peak(batch)


def test_what_is_known_of_a_batch_that_does_not_fit_makes_the_line_no_flatter(monkeypatch):
    measuring(monkeypatch, lambda batch: 300 * MiB if batch <= 32 else 2000 * MiB)
    measured = asyncio.run(MemoryBook(Queue()).of(REHEARSAL))
    assert measured.line.predict(FAR_BATCH) >= Queue.largest_bytes
    assert measured.line.predict(32) >= 300 * MiB


def test_a_model_that_does_not_fit_at_all_is_refused(monkeypatch):
    measuring(monkeypatch, lambda batch: 2000 * MiB)
    with pytest.raises(RequestRefused, match="do not run in 999 MiB"):
        asyncio.run(MemoryBook(Queue()).of(REHEARSAL))
