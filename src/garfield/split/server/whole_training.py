"""A whole fine-tuning as one request (ALL_IN_COS, thesis 5.4.1): rights, memory, progress.

It is admitted when the memory of the whole training is free, and keeps it to the end: nothing
can be made smaller to let others in. The answer is a line of JSON for every batch, and a last
one that says where the trained layers are, or what went wrong. A training that waits for memory,
or for a long batch, says every few seconds that it is there: its client cannot know how long that
will be, and would give up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

from garfield.core.errors import RequestRefused
from garfield.core.files import as_json
from garfield.split.server.extraction_sizes import OBJECTS_HELD
from garfield.split.server.memory import Rehearsal
from garfield.split.server.outlet import ClientGone, Outlet
from garfield.split.server.reading import check_below, tenant_of
from garfield.split.server.seats import Seat
from garfield.split.server.service import Progress, SplitService, input_shape_of
from garfield.split.server.workers import WorkerLost
from garfield.split.wire import TrainRequest

SILENT_S = 15.0
"""The longest that a client hears nothing; far below what it waits for an answer."""
_THERE = b'{"event": "there"}\n'


async def train_whole(
    service: SplitService, request: TrainRequest, access: str, out: Outlet, seat: Seat
) -> None:
    """Put the progress of a training into an outlet, a line at a time."""
    async with service.answering(out):
        async with _heard_of(out):
            told = await _trained(service, request, access, out, seat)
        await out.put(_line(told))


def failed_line(refused: RequestRefused) -> bytes:
    """The last line of a training that cannot be finished."""
    return _line({"event": "failed", "error": refused.refusal, "message": str(refused)})


def _line(told: Mapping[str, Any]) -> bytes:
    return (as_json(told) + "\n").encode()


@asynccontextmanager
async def _heard_of(out: Outlet) -> AsyncIterator[None]:
    """Say every few seconds that the training in the block is there."""

    async def say_so() -> None:
        with suppress(ClientGone):  # whoever trains notices, too
            while True:
                await asyncio.sleep(SILENT_S)
                await out.put(_THERE)

    task = asyncio.get_running_loop().create_task(say_so())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _trained(
    service: SplitService, request: TrainRequest, access: str, out: Outlet, seat: Seat
) -> Mapping[str, Any]:
    check_below(service.settings.store, request.data)
    shape = input_shape_of(request)
    async with AsyncExitStack() as stack:
        store = await service.in_thread(lambda: service.open(request.data, access))
        first, *others = request.objects
        sizes = [await service.in_thread(partial(store.size, first))]
        seat.confirmed(tenant_of(access, first))  # thousands are to come, not from its address
        # one call each: none waits for the others, and other tenants' come between
        sizes += [await service.in_thread(partial(store.size, name)) for name in others]
        weights = await service.held_weights(stack, store, request)
        measured = await service.book.of(Rehearsal.of_training(request, shape, weights))
        objects = sum(sorted(sizes)[-OBJECTS_HELD:])
        base, per_sample = measured.needs(objects, request.batch)
        task = service.task("train", request, access, sizes, shape, weights)
        progress = Progress()
        # of one size, whatever the memory: training cannot do with a smaller batch
        grant = await service.queue.granted(base + request.batch * per_sample, 1, 1)
        try:
            await service.run(grant, task, progress, out)
        except WorkerLost as lost:
            raise lost.refusal(
                "The training needed more memory than was reserved. Take a smaller batch, or "
                "split.",
                "The process that trained has ended.",
            ) from None
        finally:
            service.queue.release(grant)
    return {
        "event": "done",
        "result": request.result,
        "peak_bytes": progress.peak_bytes,
        "server_peak_bytes": service.pool.peak_bytes,
        "reserved_bytes": grant.reserved_bytes,
        "waited_s": grant.waited_s,
        "seconds": progress.seconds,
    }
