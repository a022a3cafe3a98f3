"""A request from its rights to its last row: what the server does, without HTTP.

    may the tenant read the object, and the weights?     the store says so, with the tenant's token
    how much memory does it need?                        measured, `memory`
    when, where, with which COS batch?                   `queue`
    rows, as the worker computes them                    `workers`

A worker that is lost, by its memory limit or otherwise, costs nothing but time: the rest of the
rows is computed by another, with half the batch.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from garfield.core.errors import GarfieldError, RequestRefused
from garfield.core.files import as_json
from garfield.split.feature_objects import features_name
from garfield.split.server.memory import MemoryBook, Rehearsal
from garfield.split.server.messages import Kind
from garfield.split.server.outlet import ClientGone, Outlet
from garfield.split.server.queue import Grant, RequestQueue
from garfield.split.server.reading import check_below, tenant_of, tenants_store
from garfield.split.server.seats import Seat
from garfield.split.server.settings import ServeSettings, amount
from garfield.split.server.spool import Spool
from garfield.split.server.weights import WeightsCache, WeightsFile
from garfield.split.server.workers import WorkerLost, WorkerPool
from garfield.split.wire import (
    ExtractRequest,
    ProfileRequest,
    Refusal,
    TrainRequest,
    as_refusal,
    encode_request,
    end_frame,
    from_body,
)

if TYPE_CHECKING:
    from garfield.split.stores import Store

TRIES = 4
_KEPT_COPIES = 4
"""Copies of an object's features that a worker may hold while it puts them together and stores
them."""
_STORE_THREADS = 16
Answer = TypeVar("Answer")


@dataclass
class Served:
    """What has been served so far."""

    requests: int = 0
    refused: int = 0
    abandoned: int = 0
    """Requests whose clients went before the end."""
    retries: int = 0
    samples: int = 0
    read_bytes: int = 0
    reduced: int = 0
    """Requests whose COS batch was smaller than they allowed (Table 5.4)."""


@dataclass
class Progress:
    """How far the answer to a request has come, over all tries."""

    rows: int = 0
    retries: int = 0
    b_max: int = 1
    kept_bytes: int = 0
    """What it holds to the end, whatever the batch."""
    batches: list[int] = field(default_factory=list)
    peak_bytes: int = 0
    reserved_bytes: int = 0
    waited_s: float = 0.0
    stored_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


class SplitService:
    """Answers requests; holds nothing of a tenant but weights, which are named by their hash."""

    def __init__(
        self,
        settings: ServeSettings,
        pool: WorkerPool,
        queue: RequestQueue,
        weights: WeightsCache,
        spool: Spool,
    ) -> None:
        self.settings, self.pool, self.queue, self.weights = settings, pool, queue, weights
        self.spool = spool
        self.book = MemoryBook(queue, settings.work_s)
        self.served = Served()
        self.store_settings = asdict(settings.connection)
        self.layer_seconds: dict[object, Mapping[str, Any]] = {}
        """Of models whose layers were timed (`profiling`)."""
        self._most_object = amount(settings.most_object, "most_object")
        self._threads = ThreadPoolExecutor(_STORE_THREADS, "garfield-split-store")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    @asynccontextmanager
    async def answering(self, out: Outlet) -> AsyncIterator[None]:
        """Count a request, and end its outlet, whatever happens to it in the block."""
        self.served.requests += 1
        try:
            yield
        except GarfieldError as error:
            self.served.refused += 1
            out.end(as_refusal(error))
        except ClientGone:
            self.served.abandoned += 1
        except asyncio.CancelledError:
            self.served.abandoned += 1
            out.end(Refusal.FAILED.error("The server is being stopped."))
            raise
        except Exception as failure:
            self.served.refused += 1
            out.end(Refusal.FAILED.error(f"The server failed: {type(failure).__name__}."))
            raise
        else:
            out.end()

    async def extract(self, request: ExtractRequest, access: str, out: Outlet, seat: Seat) -> None:
        """Put the features that a request asks for into an outlet."""
        async with self.answering(out):
            trailer = await self._computed("extract", request, access, out, seat)
            await out.put(end_frame(trailer))

    async def materialise(
        self, request: ExtractRequest, access: str, out: Outlet, seat: Seat
    ) -> None:
        """Store the features of all samples of an object beside it, and say so in JSON."""
        async with self.answering(out):
            name = features_name(request)
            if request.samples is None or request.samples != (*range(len(request.samples)),):
                raise Refusal.MALFORMED.error("Features are kept of all samples, in their order.")
            trailer = await self._computed("materialise", request, access, out, seat)
            await out.put(as_json({"name": name, **trailer}).encode())

    async def _computed(
        self, work: str, request: ExtractRequest, access: str, out: Outlet, seat: Seat
    ) -> Mapping[str, Any]:
        """Have a worker run the first layers over an object; what to tell at the end."""
        check_below(self.settings.store, request.data)
        input_shape = input_shape_of(request)
        async with AsyncExitStack() as stack:
            store = await self.in_thread(lambda: self.open(request.data, access))
            size = await self.in_thread(lambda: store.size(request.object_name))
            seat.confirmed(tenant_of(access, request.object_name))
            if size > self._most_object:
                raise Refusal.TOO_LARGE.error(
                    f"{request.object_name} has {size} bytes; this server reads objects of "
                    f"{self._most_object}."
                )
            weights = await self.held_weights(stack, store, request)
            rehearsal = Rehearsal.of_prefix(request, request.split, input_shape, weights)
            task = self.task(work, request, access, size, input_shape, weights)
            progress = Progress(b_max=self._most_batch(request))
            if work == "materialise":
                row = 4 * math.prod((await self.book.of(rehearsal)).out_shape)
                progress.kept_bytes = _KEPT_COPIES * row * len(request.samples or ())
            while not await self._tried(rehearsal, task, progress, out):
                pass
        return self._trailer(progress, size)

    def task(
        self,
        work: str,
        request: ExtractRequest | TrainRequest,
        access: str,
        object_bytes: int | list[int],
        input_shape: tuple[int, ...],
        weights: WeightsFile | None,
    ) -> dict[str, Any]:
        """What a worker is told of a request."""
        return {
            "work": work,
            "request": encode_request(request).decode(),
            "access": access,
            "store": self.store_settings,
            "object_bytes": object_bytes,
            "input_shape": input_shape,
            "weights_file": weights.path if weights else None,
        }

    def _most_batch(self, request: ExtractRequest) -> int:
        """b_max: the training batch, or the samples wanted if they are fewer."""
        if request.samples is not None:
            return min(request.batch, len(request.samples))
        return min(
            request.batch, self.settings.batching.fixed_batch
        )  # how many there are is not known yet

    async def _tried(
        self,
        rehearsal: Rehearsal,
        task: Mapping[str, Any],
        progress: Progress,
        out: Outlet,
    ) -> bool:
        """Try once; False if a worker was lost and another try is worth it."""
        measured = await self.book.of(rehearsal)
        b_min = min(self.settings.batching.b_min, progress.b_max)
        base, per_sample = measured.needs(task["object_bytes"], b_min)
        grant = await self.queue.granted(base + progress.kept_bytes, per_sample, progress.b_max)
        progress.batches.append(grant.batch)
        progress.waited_s += grant.waited_s
        progress.reserved_bytes = max(progress.reserved_bytes, grant.reserved_bytes)
        try:
            await self.run(grant, task, progress, out)
            return True
        except WorkerLost as lost:
            refused = _refused(lost, progress.retries + 1)
        except RequestRefused as error:
            if error.refusal != Refusal.OUT_OF_MEMORY.word:
                raise
            refused = error
        finally:
            self.queue.release(grant)
        if refused.refusal == Refusal.OUT_OF_MEMORY.word:
            self.book.widen(rehearsal)
        progress.retries += 1
        self.served.retries += 1
        progress.b_max = max(1, grant.batch // 2)
        if progress.retries >= TRIES:
            raise refused
        return False

    async def run(
        self, grant: Grant, task: Mapping[str, Any], progress: Progress, out: Outlet
    ) -> None:
        """Run a granted task, and pass its rows on."""
        worker = grant.worker
        granted = {**task, "batch": grant.batch, "rows_done": progress.rows}
        running = worker.run(granted, grant.most_bytes, self.settings.work_s)
        async with aclosing(running) as answers:
            async for message in answers:
                if message.kind is Kind.REFUSED:
                    raise from_body(message.content, Refusal.FAILED.status)
                if message.kind is Kind.DONE:
                    break
                if message.content:  # else it merely tells that it is not stuck
                    await out.put(message.content)
                progress.rows += message.rows
        progress.peak_bytes = max(progress.peak_bytes, worker.grown_bytes)
        told = message.told
        progress.stored_bytes = told.get("stored_bytes", 0)
        for what, seconds in told["seconds"].items():
            progress.seconds[what] = progress.seconds.get(what, 0.0) + seconds

    def _trailer(self, progress: Progress, size: int) -> Mapping[str, Any]:
        served = self.served
        served.samples += progress.rows
        served.read_bytes += size
        served.reduced += progress.batches[-1] < progress.b_max
        return {
            "cos_batch": progress.batches[-1],
            "cos_batches": progress.batches,
            "retries": progress.retries,
            "peak_bytes": progress.peak_bytes,
            "server_peak_bytes": self.pool.peak_bytes,
            "reserved_bytes": progress.reserved_bytes,
            "waited_s": progress.waited_s,
            "seconds": progress.seconds,
            "read_bytes": size,
            "stored_bytes": progress.stored_bytes,
        }

    def open(self, data: str, access: str) -> Store:
        return tenants_store(data, access, self.store_settings)

    async def held_weights(
        self,
        stack: AsyncExitStack,
        store: Store,
        request: ExtractRequest | ProfileRequest | TrainRequest,
    ) -> WeightsFile | None:
        """The weights that a request names, held until the stack closes."""
        if request.weights is None or getattr(request, "split", 1) == 0:
            return None
        held = self.weights.held(store, request.weights, self.in_thread)
        return await stack.enter_async_context(held)

    async def in_thread(self, call: Callable[[], Answer]) -> Answer:
        """A blocking call of a store."""
        loop = asyncio.get_running_loop()
        try:
            with anyio.fail_after(self.settings.store_s):
                return await loop.run_in_executor(self._threads, call)
        except TimeoutError:
            raise Refusal.STORE.error(
                f"The store did not answer in {self.settings.store_s:g} s."
            ) from None


def _refused(lost: WorkerLost, times: int) -> RequestRefused:
    """What the client hears if there is no further try."""
    return lost.refusal(
        f"The request needed more memory than was reserved for it, {times} times, at ever "
        "smaller batches.",
        f"The process that worked on the request ended, {times} times.",
    )


def input_shape_of(request: ExtractRequest | TrainRequest) -> tuple[int, ...]:
    """The shape of one transformed image: from its transforms, else what the model is made for.

    It is a claim: a worker compares it with what comes, and nothing is run on anything else.
    """
    from garfield.split.models import SPLIT_MODELS
    from garfield.split.transforms import Transforms

    shape = Transforms.from_json(request.transforms).out_shape
    if shape is not None:
        return shape
    if request.model is not None:
        return SPLIT_MODELS[request.model].image
    try:
        told = json.loads(getattr(request, "graph", None) or "")["input"]
        if 1 <= len(told) <= 4 and all(type(side) is int and 0 < side <= 4096 for side in told):
            return tuple(told)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise Refusal.BAD_MODEL.error("The graph does not tell the shape of its input.")
