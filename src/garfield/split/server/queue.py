"""Who runs next, where, and with which COS batch: the shell around `split/scheduler.py`.

A request waits here until the plan admits it to a device and gives it a batch size; then it has
a worker and a reservation of memory until it is released. A plan is made when a request arrives,
after a short window in which others may arrive too, and at once when memory comes free. What
the workers hold by being there, and what running requests have reserved, is taken into account.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from garfield.split.scheduler import Batching, Device, Request, assign, plan_at
from garfield.split.wire import Refusal

if TYPE_CHECKING:
    from garfield.split.server.workers import Worker, WorkerPool

LONGEST_SERVICE_S = 5.0  # that the window before a plan is a part of
_LATEST = 0.2  # how much the last service time moves the mean


@dataclass(frozen=True, eq=False)
class Grant:
    """The right to run: a worker, a batch size, and memory for it."""

    worker: Worker
    batch: int
    reserved_bytes: int
    """Beyond what the worker holds anyway."""
    waited_s: float
    since: float = field(default_factory=time.monotonic)

    @property
    def most_bytes(self) -> int:
        """What the worker may hold in all."""
        return self.worker.idle_bytes + self.reserved_bytes


@dataclass(eq=False)
class _Waiting:
    request: Request
    granted: asyncio.Future[Grant]
    arrived: float


@dataclass
class DeviceRecord:
    """How a device has been used."""

    budget_bytes: int
    peak_reserved_bytes: int = 0
    peak_running: int = 0
    served: int = 0


class RequestQueue:
    """Requests that wait, and those that run. Belongs to one event loop."""

    def __init__(
        self,
        pool: WorkerPool,
        batching: Batching,
        *,
        most_waiting: int = 1000,
    ) -> None:
        self._pool, self._batching, self._most_waiting = pool, batching, most_waiting
        self._waiting: dict[str, _Waiting] = {}
        self._running: dict[str, list[Grant]] = {name: [] for name in pool.budgets}
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self.service_s = 0.0
        """Mean time from grant to release, of late."""
        self.planning_s = 0.0
        """How long the slowest plan took."""
        self.records = {name: DeviceRecord(size) for name, size in pool.budgets.items()}
        pool.changed = self.plan

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return sum(map(len, self._running.values()))

    @property
    def largest_bytes(self) -> int:
        """The most that a request may ever get."""
        return max(size - self._pool.idle_bytes(name) for name, size in self._pool.budgets.items())

    def reserved_bytes(self, device: str) -> int:
        """What a device's workers may hold by now, idle ones included."""
        granted = sum(grant.reserved_bytes for grant in self._running[device])
        return self._pool.idle_bytes(device) + granted

    async def granted(self, base_bytes: int, per_sample_bytes: int, b_max: int) -> Grant:
        """Wait for a turn. Whoever gets a grant must release it.

        Refused if the queue is full, or if no device could ever hold the request.
        """
        if len(self._waiting) >= self._most_waiting:
            raise Refusal.BUSY.error(
                f"{len(self._waiting)} requests wait already. Try again, or another server."
            )
        number = str(next(self._numbers))
        request = Request(number, max(0, base_bytes), max(1, per_sample_bytes), b_max)
        future = asyncio.get_running_loop().create_future()
        self._waiting[number] = _Waiting(request, future, time.monotonic())
        self._plan_soon()
        try:
            grant: Grant = await future
        except asyncio.CancelledError:
            self._waiting.pop(number, None)
            if future.done() and not future.cancelled() and future.exception() is None:
                self.release(future.result())  # it came in the same moment
            raise
        return grant

    def release(self, grant: Grant) -> None:
        """Give memory and worker back."""
        device = grant.worker.device
        self._running[device].remove(grant)
        spent = time.monotonic() - grant.since
        self.service_s += (spent - self.service_s) * (_LATEST if self.service_s else 1.0)
        self.records[device].served += 1
        self._pool.released(grant.worker)  # which plans anew, as something has changed

    def plan(self) -> None:
        """Admit what fits now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        began = time.perf_counter()
        queue = [waiting.request for waiting in self._waiting.values()]
        plan = assign(queue, [self._device(name) for name in self._pool.budgets], self._batching)
        self.planning_s = max(self.planning_s, time.perf_counter() - began)
        for request in plan.waiting:
            self._waiting[request.id].request = request
        for number in plan.impossible:
            self._refuse(self._waiting.pop(number))
        for admission in plan.admitted:
            self._grant(
                self._waiting.pop(admission.id),
                admission.device,
                admission.batch,
                admission.reserved_bytes,
            )
        for name, record in self.records.items():
            running = len(self._running[name])
            reserved = self.reserved_bytes(name) if running else 0
            record.peak_reserved_bytes = max(record.peak_reserved_bytes, reserved)
            record.peak_running = max(record.peak_running, running)

    def _plan_soon(self) -> None:
        """After a window, in which those that come in quick succession are planned together."""
        if self._timer is None:
            now = time.monotonic()
            service_s = min(self.service_s, LONGEST_SERVICE_S)
            at = plan_at(
                now_s=now,
                first_new_s=now,
                freed_s=None,
                service_s=service_s,
                batching=self._batching,
            )
            delay_s = 0.0 if at is None else at - now
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.plan)

    def _device(self, name: str) -> Device:
        return Device(
            name,
            self._pool.budgets[name],
            self.reserved_bytes(name),
            running=len(self._running[name]),
            free_slots=len(self._pool.free(name)),
            idle_bytes=self._pool.idle_bytes(name),
        )

    def _grant(self, waiting: _Waiting, device: str, batch: int, reserved_bytes: int) -> None:
        if waiting.granted.done():
            return  # whoever waited has gone
        worker = self._pool.free(device)[0]
        worker.busy = True
        waited_s = time.monotonic() - waiting.arrived
        grant = Grant(worker, batch, reserved_bytes, waited_s)
        self._running[device].append(grant)
        waiting.granted.set_result(grant)

    def _refuse(self, waiting: _Waiting) -> None:
        if waiting.granted.done():
            return
        request, largest = waiting.request, max(self._pool.budgets.values())
        least = request.base_bytes + request.per_sample_bytes * min(
            self._batching.b_min, request.b_max
        )
        waiting.granted.set_exception(
            Refusal.OUT_OF_MEMORY.error(
                f"The request needs {least >> 20} MiB at the smallest batch, beside what idle "
                f"workers hold; the largest device has {largest >> 20} MiB."
            )
        )
