"""Which queued requests run now, where, and how many samples at a time: equation 5.1.

The server may choose each request's COS batch size b within [b_min, b_max], because a frozen
layer gives the same features whatever the batch. Equation 5.1 of the thesis asks for the batches
that use as much of the memory as there is:

    max Σ b_r · data_r + model_r    with b_min ≤ b_r ≤ b_max and Σ ≤ total − occupied

Here, in one pass over the queue and one over the devices:

1.  Requests are admitted first come, first served, each at b_min, on the device that runs the
    fewest requests among those with room. What does not fit waits.
2.  Who comes later and needs less may overtake those that wait, but nobody is overtaken more
    than `max_overtaken` times: then all behind it wait too.
3.  The rest of each device's memory is filled evenly: all batches are raised to one level, as
    high as memory allows, nobody's beyond its b_max. What the level leaves goes to whom it
    fits, again evenly, until less than one sample of any batch that could still grow is unused.

So memory is used up to less than one sample, which is what 5.1 maximises over the requests that
were admitted; those are chosen by order and not by size, so that nobody starves.

Everything is a function of its arguments: `garfield.split.server.queue` is the shell around it.
Costs O(q · (devices + waiting)) for the first two, about O(r log b) for the third.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from garfield.core.bounds import Within
from garfield.core.errors import ConfigError


@dataclass(frozen=True)
class Batching:
    """How a server chooses the batches of its requests."""

    b_min: Annotated[int, Within(1)] = 25
    """Samples that a request runs at a time at least; fewer would cost time (thesis, 5.4.5)."""
    adapt: bool = True
    """Choose batches so that they fill the memory; without, all run with `fixed_batch`."""
    fixed_batch: Annotated[int, Within(1)] = 200
    """Samples at a time without adaptation, as in the thesis."""
    max_overtaken: Annotated[int, Within(0)] = 8
    """How many later, smaller requests may pass one that waits for memory."""
    window_fraction: Annotated[float, Within(0, 1)] = 0.05
    """How long to wait for more requests before planning, as a part of the last service times."""


@dataclass(frozen=True)
class Request:
    """A request that waits, as far as memory goes."""

    id: str
    base_bytes: int
    """What it takes whatever the batch: weights, the stored object, features to be sent."""
    per_sample_bytes: int
    """What each sample of a batch adds."""
    b_max: int
    """The most samples at a time: the lesser of training batch and object."""
    overtaken: int = 0
    """How many requests that came later have started before it."""

    def __post_init__(self) -> None:
        if self.base_bytes < 0 or self.per_sample_bytes < 1 or self.b_max < 1 or self.overtaken < 0:
            raise ConfigError(
                f"Request {self.id} must have base_bytes ≥ 0, per_sample_bytes ≥ 1, b_max ≥ 1 and "
                f"overtaken ≥ 0, got {self.base_bytes}, {self.per_sample_bytes}, {self.b_max} "
                f"and {self.overtaken}."
            )

    def needs(self, batch: int) -> int:
        """Bytes that it takes with that batch."""
        return self.base_bytes + batch * self.per_sample_bytes


@dataclass(frozen=True)
class Device:
    """A budget of memory, and what is taken of it."""

    name: str
    budget_bytes: int
    occupied_bytes: int = 0
    """Taken already: by what runs, and by each worker that merely waits."""
    running: int = 0
    """Requests that run there now."""
    free_slots: int = 1_000_000
    """Workers that could take one more."""
    idle_bytes: int = 0
    """The part of `occupied_bytes` that no request's end will free: idle workers' footprints."""

    @property
    def free_bytes(self) -> int:
        """What is left now; 0 if more than all is taken."""
        return max(0, self.budget_bytes - self.occupied_bytes)


@dataclass(frozen=True)
class Admission:
    """A request that starts now."""

    id: str
    device: str
    batch: int
    reserved_bytes: int


@dataclass(frozen=True)
class Assignment:
    """What a plan decides about every request that was queued."""

    admitted: tuple[Admission, ...] = ()
    """In the order of the queue."""
    waiting: tuple[Request, ...] = ()
    """In the order of the queue, with the overtakings of this plan counted."""
    impossible: tuple[str, ...] = ()
    """Requests that fit no device even alone and at b_min: to be refused."""


def assign(
    queue: Sequence[Request], devices: Sequence[Device], batching: Batching | None = None
) -> Assignment:
    """Admit what fits, in order, and choose the batches. The queue is in order of arrival."""
    batching = batching or Batching()
    rooms = [_Room(device, device.free_bytes, device.free_slots) for device in devices]
    largest = max((each.budget_bytes - each.idle_bytes for each in devices), default=0)
    waiting: list[Request] = []
    impossible: list[str] = []
    barred = False  # by one that may not be overtaken any more
    for request in queue:
        start = _start_batch(request, batching)
        if request.needs(start) > largest:
            impossible.append(request.id)
            continue
        room = None if barred else _room_for(rooms, request.needs(start))
        if room is None:
            waiting.append(request)
            barred = barred or request.overtaken >= batching.max_overtaken
            continue
        room.admit(request, start)
        if waiting:
            waiting = [replace(each, overtaken=each.overtaken + 1) for each in waiting]
            barred = any(each.overtaken >= batching.max_overtaken for each in waiting)
    if batching.adapt:
        for room in rooms:
            _fill(room)
    chosen = {each.id: each for room in rooms for each in room.admissions()}
    admitted = tuple(chosen[each.id] for each in queue if each.id in chosen)
    return Assignment(admitted, tuple(waiting), tuple(impossible))


def plan_at(
    *,
    now_s: float,
    first_new_s: float | None,
    freed_s: float | None,
    service_s: float,
    batching: Batching,
) -> float | None:
    """When to plan next: None if nothing has changed since the last plan.

    `first_new_s` is when the first request came that no plan has seen: it is planned after a
    window, a part of what a request takes to serve, in which more may come. `freed_s` is when
    memory was freed for requests that wait: they are planned at once. The caller asks only while
    requests are queued and some device has memory and a worker free.
    """
    moments = []
    if first_new_s is not None:
        moments.append(first_new_s + batching.window_fraction * max(0.0, service_s))
    if freed_s is not None:
        moments.append(freed_s)
    return max(now_s, min(moments)) if moments else None


@dataclass
class _Room:
    """A device while a plan is made."""

    device: Device
    free: int
    slots: int
    requests: list[Request] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)

    @property
    def load(self) -> int:
        return self.device.running + len(self.requests)

    def admit(self, request: Request, batch: int) -> None:
        self.requests.append(request)
        self.batches.append(batch)
        self.free -= request.needs(batch)
        self.slots -= 1

    def admissions(self) -> list[Admission]:
        return [
            Admission(request.id, self.device.name, batch, request.needs(batch))
            for request, batch in zip(self.requests, self.batches, strict=True)
        ]


def _start_batch(request: Request, batching: Batching) -> int:
    """What a request is admitted with; small objects have fewer samples than b_min."""
    return min(batching.b_min if batching.adapt else batching.fixed_batch, request.b_max)


def _room_for(rooms: Sequence[_Room], needed: int) -> _Room | None:
    """The least loaded device that has the memory and a worker; of equals the emptiest."""
    able = [room for room in rooms if room.slots > 0 and room.free >= needed]
    return min(able, key=lambda room: (room.load, -room.free), default=None)


def _fill(room: _Room) -> None:
    """Raise the batches of one device evenly until less than one sample is unused."""
    growing = _able_to_grow(room, range(len(room.requests)))
    while growing:
        _raise_to_level(room, growing)
        for index in growing:  # what the level has left: one sample each, in order
            request = room.requests[index]
            if room.free >= request.per_sample_bytes and room.batches[index] < request.b_max:
                room.batches[index] += 1
                room.free -= request.per_sample_bytes
        growing = _able_to_grow(room, growing)


def _able_to_grow(room: _Room, indices: Sequence[int]) -> list[int]:
    return [
        index
        for index in indices
        if room.batches[index] < room.requests[index].b_max
        and room.free >= room.requests[index].per_sample_bytes
    ]


def _raise_to_level(room: _Room, growing: Sequence[int]) -> None:
    """Raise those below it to the highest common batch that memory allows, each to its b_max."""
    rising = [(room.batches[index], room.requests[index]) for index in growing]

    def cost(level: int) -> int:
        return sum(
            (min(level, request.b_max) - batch) * request.per_sample_bytes
            for batch, request in rising
            if level > batch
        )

    low = min(batch for batch, _ in rising)
    high = max(request.b_max for _, request in rising)
    step = 1  # doubled until memory is too little: later rounds rise by few samples
    while low + step < high and cost(low + step) <= room.free:
        step *= 2
    levels = range(low + 1, min(low + step, high) + 1)
    # the cost rises with the level: the last that fits is one before the first that does not
    level = low + bisect_right(levels, room.free, key=cost)
    for index in growing:
        request = room.requests[index]
        raised = max(room.batches[index], min(level, request.b_max))
        room.free -= (raised - room.batches[index]) * request.per_sample_bytes
        room.batches[index] = raised
