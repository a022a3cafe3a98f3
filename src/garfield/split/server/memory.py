"""How much memory a request needs, as the server has measured it: a client may lie.

The first layers run once in a worker, on made-up batches of two sizes, and the peaks are read
from what also limits the worker. From them comes a line, `split/profile.py`, kept by model,
weights, split and input shape. On top of it comes what a request reads:

    loading weights     what that took
    reading the object  the model, the object, and a piece on its way
    running             the model, the object, images being decoded, and the batch

The largest of the three is what is reserved.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from garfield.core.errors import RequestRefused
from garfield.split.profile import PROFILE_BATCHES, MemoryModel
from garfield.split.server.extraction_sizes import AT_ONCE, READ
from garfield.split.server.messages import Kind
from garfield.split.server.workers import WorkerLost
from garfield.split.wire import Model, Refusal, TrainRequest, encode_request, from_body

if TYPE_CHECKING:
    from garfield.split.server.queue import Grant, RequestQueue
    from garfield.split.server.weights import WeightsFile

Peaks: TypeAlias = tuple[tuple[int, int], ...]

KEPT = 1000  # measurements
_GUESSED = 24
"""Images' worth of memory that each sample of a first rehearsal may take; ResNet-18 takes 12."""
_DECODING = 6  # float32 images in memory for each one being decoded and transformed
FAR_BATCH = 128  # where samples outweigh weights also for small images
_TELLING = 64 << 20  # bytes between two peaks of which the noise, some MiB, is little
_MOST_LOST = 4  # workers in a row, for one measurement: more than are idle on a small server
_WIDER = 1.25  # after a request was killed although it had what was predicted


@dataclass(frozen=True)
class Measured:
    """What a model's first layers need, beyond an idle worker."""

    load_bytes: int
    """The peak while weights are loaded, or, of a training, packed at its end."""
    peaks: Peaks
    """(batch, bytes) of the peaks while a batch runs, weights included."""
    input_bytes: int
    """Of one transformed image."""
    out_shape: tuple[int, ...]
    seconds: Mapping[str, float]
    wider: float = 1.0
    """How much more is reserved than measured: more than 1 once that was too little."""

    @cached_property
    def line(self) -> MemoryModel:
        """What batches of any size need."""
        if len(self.peaks) < 2:
            return MemoryModel(max(peak for _, peak in self.peaks), 1)
        line = MemoryModel.fit(self.peaks)
        return replace(
            line,
            base_bytes=math.ceil(line.base_bytes * self.wider),
            per_sample_bytes=math.ceil(line.per_sample_bytes * self.wider),
        )

    def with_peaks(self, peaks: Peaks) -> Measured:
        """The same, measured at more batch sizes."""
        return replace(self, peaks=(*self.peaks, *peaks))

    def needs(self, object_bytes: int, b_min: int) -> tuple[int, int]:
        """(base, per sample) bytes that cover every phase of a request, at b_min and above."""
        per_sample = self.line.per_sample_bytes
        decoding = AT_ONCE * _DECODING * self.input_bytes + (4 << 20)
        below = max(0, self.line.least_batch - b_min)  # the line begins there
        running = self.line.base_bytes + below * per_sample + object_bytes + decoding
        reading = self.line.base_bytes + object_bytes + 2 * READ + (4 << 20)
        other = max(self.load_bytes, reading if object_bytes > READ else 0)
        return max(running, other - b_min * per_sample), per_sample

    def widened(self) -> Measured:
        """For what turned out to need more than was predicted."""
        return replace(
            self, wider=self.wider * _WIDER, load_bytes=math.ceil(self.load_bytes * _WIDER)
        )


@dataclass(frozen=True)
class Rehearsal:
    """What to measure, and what tells it from others."""

    key: tuple[object, ...]
    task: Mapping[str, Any]
    input_shape: tuple[int, ...]
    first_guess: int
    """Bytes for a first try; if they are too few, the next has twice as many."""

    @classmethod
    def of_prefix(
        cls, model: Model, split: int, input_shape: tuple[int, ...], weights: WeightsFile | None
    ) -> Rehearsal:
        """Run the first layers."""
        graph = hashlib.sha256((model.graph or "").encode()).hexdigest()
        return cls(
            ("prefix", model.model or graph, model.weights, split, input_shape),
            {
                "work": "rehearse",
                "model": model.model,
                "graph": model.graph,
                "weights": model.weights,
                "weights_file": weights.path if weights else None,
                "split": split,
                "input_shape": input_shape,
            },
            input_shape,
            _first_guess(input_shape, weights),
        )

    @classmethod
    def of_training(
        cls, request: TrainRequest, input_shape: tuple[int, ...], weights: WeightsFile | None
    ) -> Rehearsal:
        """Train all layers for a step."""
        depends_on = (request.model, request.weights, request.freeze, request.classes)
        has_momentum = request.momentum != 0  # a number more for each that is trained
        return cls(
            ("training", *depends_on, has_momentum, input_shape),
            {
                "work": "rehearse-training",
                "request": encode_request(request).decode(),
                "weights_file": weights.path if weights else None,
                "input_shape": input_shape,
            },
            input_shape,
            3 * _first_guess(input_shape, weights),
        )


def _first_guess(input_shape: tuple[int, ...], weights: WeightsFile | None) -> int:
    batch = max(PROFILE_BATCHES) * 4 * math.prod(input_shape)
    return (64 << 20) + _GUESSED * batch + 3 * (weights.size if weights else 0)


@dataclass(eq=False)
class _Making:
    """A measurement under way."""

    task: asyncio.Task[Measured]
    waiting: int = 0
    """Requests that need it."""


class MemoryBook:
    """Measurements by what was measured; each is made once, whoever asks first, and called off
    when nobody waits for it any more."""

    def __init__(self, queue: RequestQueue, silent_s: float) -> None:
        """`silent_s` is how long a worker may be silent while it measures."""
        self._queue, self._silent_s = queue, silent_s
        self._known: OrderedDict[object, Measured] = OrderedDict()
        self._being_made: dict[object, _Making] = {}
        self.made = 0

    async def of(self, rehearsal: Rehearsal) -> Measured:
        """What this needs; measured now if it is not known."""
        key = rehearsal.key
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        if (making := self._being_made.get(key)) is None:
            task = asyncio.get_running_loop().create_task(self._measured(rehearsal))
            making = self._being_made[key] = _Making(task)
        making.waiting += 1
        try:
            # shielded: the others who wait for it lose nothing if this client goes
            measured = await asyncio.shield(making.task)
        finally:
            making.waiting -= 1
            if not making.waiting:
                making.task.cancel()  # nothing happens if it is done
            if self._being_made.get(key) is making and (making.task.done() or not making.waiting):
                del self._being_made[key]
        self.put(key, self._known.get(key, measured))
        return measured

    def widen(self, rehearsal: Rehearsal) -> None:
        """A request was killed although it had what was predicted: predict more from now on."""
        if rehearsal.key in self._known:
            self.put(rehearsal.key, self._known[rehearsal.key].widened())

    def put(self, key: object, measured: Measured) -> None:
        """Keep a measurement, and forget the oldest if there are too many."""
        self._known[key] = measured
        while len(self._known) > KEPT:
            self._known.popitem(last=False)

    async def _measured(self, rehearsal: Rehearsal) -> Measured:
        measured = await self._rehearsed(rehearsal, PROFILE_BATCHES, rehearsal.first_guess)
        per_sample, (few, many) = measured.line.per_sample_bytes, PROFILE_BATCHES
        weights_are_most = 2 * measured.line.base_bytes > many * per_sample
        if weights_are_most or (many - few) * per_sample < _TELLING:
            # where samples take over from weights the line gets steeper, and noise is less there
            measured = measured.with_peaks(await self._far_peaks(rehearsal, measured))
        self.made += 1
        return measured

    async def _far_peaks(self, rehearsal: Rehearsal, measured: Measured) -> Peaks:
        """The peak at a far larger batch; where that does not fit, what is known of it."""
        predicted = measured.line.predict(FAR_BATCH)
        guess = rehearsal.first_guess + 2 * predicted
        try:
            return (await self._rehearsed(rehearsal, (FAR_BATCH,), guess)).peaks
        except RequestRefused as refused:
            if refused.refusal != Refusal.OUT_OF_MEMORY.word:
                raise
        most = self._queue.largest_bytes  # smaller batches may fit, and it is more than this
        return ((FAR_BATCH, most),) if predicted < most else ()

    async def _rehearsed(
        self, rehearsal: Rehearsal, batches: tuple[int, ...], guess: int
    ) -> Measured:
        """Try with ever more memory, up to all that a request can get.

        A worker that was lost for another reason may have been dead before it was asked: others
        are tried, but not for ever, as it may be the model that ends them.
        """
        lost = 0
        while True:
            most = self._queue.largest_bytes - 1
            guess = min(guess, most)
            grant = await self._queue.granted(guess, 1, 1)
            try:
                return await _tried(grant, rehearsal, batches, self._silent_s)
            except WorkerLost as problem:
                if not problem.by_memory:
                    lost += 1
                    if lost < _MOST_LOST:
                        continue
                    raise Refusal.FAILED.error(
                        f"{lost} workers were lost, one after the other, while they measured."
                    ) from None
            except RequestRefused as refused:
                if refused.refusal != Refusal.OUT_OF_MEMORY.word:
                    raise
            finally:
                self._queue.release(grant)
            if guess == most:
                raise Refusal.OUT_OF_MEMORY.error(
                    f"These layers do not run in {most >> 20} MiB, which is all that a request "
                    f"can get here, with a batch of {max(batches)}."
                )
            guess *= 2


async def _tried(
    grant: Grant, rehearsal: Rehearsal, batches: tuple[int, ...], silent_s: float
) -> Measured:
    task = {**rehearsal.task, "batches": batches}
    peaks: list[int] = []
    told: Mapping[str, Any] = {}
    async with aclosing(grant.worker.run(task, grant.most_bytes, silent_s)) as answers:
        async for message in answers:
            if message.kind is Kind.MARK:
                peaks.append(await grant.worker.go_on())
            elif message.kind is Kind.REFUSED:
                raise from_body(message.content, Refusal.FAILED.status)
            else:
                told = message.told
    load, *running = peaks
    return Measured(
        load_bytes=load,
        peaks=tuple(zip(batches, running, strict=True)),
        input_bytes=4 * math.prod(rehearsal.input_shape),
        out_shape=tuple(told["out_shape"]),
        seconds=told["seconds"],
    )
