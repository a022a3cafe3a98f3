"""What a model's first layers need at this server, and how long each takes: for who plans."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any

from garfield.core.errors import ObjectMissing
from garfield.core.files import as_json
from garfield.split.objects import INDEX_NAME
from garfield.split.server.memory import Rehearsal
from garfield.split.server.messages import Kind
from garfield.split.server.outlet import Outlet
from garfield.split.server.reading import check_below, tenant_of
from garfield.split.server.seats import Seat
from garfield.split.server.service import SplitService
from garfield.split.server.workers import WorkerLost
from garfield.split.wire import ProfileRequest, Refusal, from_body

TIMED_BATCH = 8


async def tell_profile(
    service: SplitService, request: ProfileRequest, access: str, out: Outlet, seat: Seat
) -> None:
    """Put what a model's first layers need here into an outlet, as JSON."""
    async with service.answering(out):
        await out.put(as_json(await profile(service, request, access, seat)).encode())


async def profile(
    service: SplitService, request: ProfileRequest, access: str, seat: Seat
) -> Mapping[str, Any]:
    """What a model's first layers need here, and how long they take."""
    from garfield.split.models.weights import weights_name

    check_below(service.settings.store, request.data)
    async with AsyncExitStack() as stack:
        store = await service.in_thread(lambda: service.open(request.data, access))
        weights = await service.held_weights(stack, store, request)
        if weights is None:  # somebody who may read nothing here is not worked for
            with suppress(ObjectMissing):
                await service.in_thread(lambda: store.size(INDEX_NAME))
        read = INDEX_NAME if weights is None else weights_name(str(request.weights))
        seat.confirmed(tenant_of(access, read))
        rehearsal = Rehearsal.of_prefix(request, request.split, request.input_shape, weights)
        measured = await service.book.of(rehearsal)
        layers = await _layer_times(service, rehearsal, request)
    return {
        "base_bytes": measured.line.base_bytes,
        "per_sample_bytes": measured.line.per_sample_bytes,
        "load_bytes": measured.load_bytes,
        "out_shape": measured.out_shape,
        "seconds": measured.seconds,
        "layers": layers,
        "source": next(iter(service.pool.devices.values())).source.value,
    }


async def _layer_times(
    service: SplitService, rehearsal: Rehearsal, request: ProfileRequest
) -> Mapping[str, Any] | None:
    """Seconds of each layer of a registered model, timed once; None for the user's own."""
    if request.model is None or request.split == 0:
        return None
    if rehearsal.key not in service.layer_seconds:
        measured = await service.book.of(rehearsal)
        base, per_sample = measured.needs(0, TIMED_BATCH)
        apart = 2 * measured.load_bytes + (64 << 20)  # layers one by one, not in place
        grant = await service.queue.granted(base + apart, 2 * per_sample, TIMED_BATCH)
        task = {**rehearsal.task, "work": "time-layers", "batch": grant.batch}
        try:
            running = grant.worker.run(task, grant.most_bytes, service.settings.work_s)
            async with aclosing(running) as answers:
                (message,) = [message async for message in answers]
        except WorkerLost as lost:
            raise lost.refusal(
                "To time the layers took more memory than was reserved for it.",
                "The process that timed the layers has ended.",
            ) from None
        finally:
            service.queue.release(grant)
        if message.kind is Kind.REFUSED:
            raise from_body(message.content, Refusal.FAILED.status)
        service.layer_seconds[rehearsal.key] = message.told
    return service.layer_seconds[rehearsal.key]
