"""Warm worker processes under hard memory limits: started ahead, recycled, replaced when killed.

They are forked from a process that has torch loaded, so each is ready in a moment and shares
those pages; what it touches itself is its own and counts. One task at a time runs in a worker,
with a limit set for that task. Whatever happens to it, the server goes on: a worker that
crashes, is killed for its memory or does not stop when told to is replaced by a new one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, repeat
from multiprocessing import Pipe, forkserver
from multiprocessing.connection import Connection
from typing import Any

import anyio

from garfield.core.errors import NodeFailed, RequestRefused
from garfield.runs.supervisor import Supervisor
from garfield.split.server import messages
from garfield.split.server.limited_memory import DeviceMemory, ProcessMemory, Source
from garfield.split.server.limits import device_memory
from garfield.split.server.messages import ENDS, Kind, Message, OtherSideGone, ServerSide
from garfield.split.server.worker_process import worker_main
from garfield.split.wire import Refusal

_log = logging.getLogger(__name__)
PRELOADED = ("torch", "garfield.split.server.loaded_ahead")
START_S = 120.0  # importing torch on a busy machine
ABORT_S = 2.0  # for a worker to notice that nobody wants its answer; else it is killed
PAUSES_S = (0.1, 1.0, 5.0, 15.0, 60.0)
"""Between tries to start a worker in the place of another; the last of them again and again."""
SLACK = 8 << 20
"""Bytes beyond what is measured: the kernel counts ahead for each processor, and its own memory
for sockets; pages of the interpreter that a task is the first to write to become its own."""


class WorkerLost(Exception):  # noqa: N818
    """A worker ended in the middle of a task: `by_memory` if its limit killed it."""

    def __init__(self, message: str, by_memory: bool) -> None:
        super().__init__(message)
        self.by_memory = by_memory

    def refusal(self, memory: str, otherwise: str) -> RequestRefused:
        """What a client hears of it: the first sentence if memory was the reason."""
        if self.by_memory:
            return Refusal.OUT_OF_MEMORY.error(memory)
        return Refusal.FAILED.error(otherwise)


@dataclass(eq=False)
class Worker:
    """One warm process, seen from the server."""

    name: str
    device: str
    memory: ProcessMemory
    side: ServerSide
    pid: int
    held_bytes: int
    """What it held when it last had nothing to do."""
    served: int = 0
    busy: bool = False
    """It is somebody's: from a grant until it is released."""
    held_before: int = 0
    """What it held when its last task began."""
    lost: bool = False
    """It has ended: it will be replaced."""
    stuck: bool = False
    """It did not drop a task that nobody wants any more: it will be replaced."""

    @property
    def idle_bytes(self) -> int:
        """What is set aside for it while it merely waits."""
        return self.held_bytes + SLACK

    @property
    def grown_bytes(self) -> int:
        """The peak of its task, beyond what it held before; 0 if it has ended since."""
        with suppress(OSError):
            return max(0, self.memory.peak_bytes - self.held_before)
        return 0

    async def run(
        self, task: Mapping[str, Any], most_bytes: int, silent_s: float
    ) -> AsyncGenerator[Message, None]:
        """Run a task with so much memory; gives its messages, the last of them its end.

        WorkerLost if the process ends instead, or says nothing for so long. Whoever stops listening
        early calls the task off.
        """
        ended = False
        self.held_before = self.held_bytes
        try:
            self.memory.forget_peak()
            self.memory.limit(most_bytes)
            with anyio.fail_after(silent_s):
                await self.side.send(messages.of(Kind.TASK, task))
            while not ended:
                with anyio.fail_after(silent_s):
                    message = await self.side.receive()
                ended = message.kind in ENDS
                if ended:
                    self.held_bytes = self.memory.used_bytes
                    self.served += 1
                yield message
        except TimeoutError:
            raise WorkerLost(f"{self.name} was silent for {silent_s:g} s", False) from None
        except (OtherSideGone, OSError) as problem:
            ended = True
            raise self._ended(problem) from None
        finally:
            if not ended:
                await self._call_off()

    async def go_on(self) -> int:
        """After a MARK: how far it has grown until there; it is measured anew from here."""
        grown = self.grown_bytes
        try:
            self.memory.forget_peak()
            await self.side.send(Message(Kind.GO_ON))
        except (OtherSideGone, OSError) as problem:
            raise self._ended(problem) from None
        return grown

    def _ended(self, problem: Exception) -> WorkerLost:
        self.lost = True
        return WorkerLost(f"{self.name}: {problem}", self.memory.kills > 0)

    async def _call_off(self) -> None:
        """Make it forget its task; if it does not, it will be replaced."""
        self.stuck = True  # unless it answers
        with anyio.move_on_after(ABORT_S):
            try:
                await self._drain()
            except (OtherSideGone, OSError):
                self.lost = True
            self.stuck = False

    async def _drain(self) -> None:
        await self.side.send(Message(Kind.ABORT))
        while (message := await self.side.receive()).kind not in ENDS:
            if message.kind is Kind.MARK:
                await self.side.send(Message(Kind.GO_ON))
        self.held_bytes = self.memory.used_bytes


@dataclass
class PoolRecord:
    """What has happened to the workers so far."""

    started: int = 0
    recycled: int = 0
    lost: int = 0
    lost_by_memory: int = 0
    stopped: int = 0
    """Killed, as they worked on for a client that had gone."""


@dataclass
class WorkerPool:
    """The workers of all devices. Use as an async context; `changed` is called when one is free."""

    budgets: Mapping[str, int]
    """Bytes by device."""
    workers: int
    """For each device."""
    recycle_after: int = 200
    """Tasks, after which a worker is replaced by a fresh one."""
    threads: int = 1
    sources: Sequence[Source] = tuple(Source)
    changed: Callable[[], None] = lambda: None
    record: PoolRecord = field(default_factory=PoolRecord)
    devices: dict[str, DeviceMemory] = field(default_factory=dict)
    all: list[Worker] = field(default_factory=list)
    _replacing: set[asyncio.Task[None]] = field(default_factory=set)
    _closing: bool = False

    async def __aenter__(self) -> WorkerPool:
        self._thread = _starting_thread()
        self._supervisor = await self._call(lambda: Supervisor(preload=PRELOADED))
        try:
            for name, budget in self.budgets.items():
                self.devices[name] = device_memory(name, budget, self.sources)
            names = [(device, slot) for device in self.budgets for slot in range(self.workers)]
            await asyncio.gather(*(self._start(device, slot) for device, slot in names))
        except OtherSideGone as problem:
            await self.__aexit__()
            least = min(self.budgets.values()) >> 20
            raise NodeFailed(
                f"A worker did not start: {problem}. If it had too little memory, give a larger "
                f"budget, or fewer workers: now {self.workers} share {least} MiB."
            ) from None
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        for task in self._replacing:
            task.cancel()
        await asyncio.gather(*self._replacing, return_exceptions=True)
        await self._call(self._supervisor.stop)
        for worker in self.all:
            worker.side.close()
            await self._call(worker.memory.close)
        self.all.clear()
        for device in self.devices.values():
            await self._call(device.close)

    def free(self, device: str) -> list[Worker]:
        """Workers of a device that wait for a task, the least used first."""
        found = [w for w in self.all if w.device == device and not (w.busy or w.lost or w.stuck)]
        return sorted(found, key=lambda worker: worker.served)

    def idle_bytes(self, device: str) -> int:
        """What the workers of a device hold by merely being there; of those to come, a guess."""
        known = [worker.idle_bytes for worker in self.all if worker.device == device]
        missing = self.workers - len(known)
        return sum(known) + missing * max(known, default=0)

    @property
    def peak_bytes(self) -> int:
        """The most that all workers have held since they first started, idle ones included.

        Of several devices it is the sum of their peaks, which may have come one after the other.
        """
        return sum(device.peak_bytes for device in self.devices.values())

    def released(self, worker: Worker) -> None:
        """Take a worker back after a task; one that is lost or worn out is replaced."""
        worker.busy = False
        if self._closing:
            return
        if worker.lost or worker.stuck or worker.served >= self.recycle_after:
            self._replace(worker)
        self.changed()

    def _replace(self, worker: Worker) -> None:
        if worker.lost:
            self.record.lost += 1
            self.record.lost_by_memory += worker.memory.kills > 0
        elif worker.stuck:
            self.record.stopped += 1
        else:
            self.record.recycled += 1
        self.all.remove(worker)
        task = asyncio.get_running_loop().create_task(self._started_anew(worker))
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def _started_anew(self, old: Worker) -> None:
        """Try until a new one runs: a machine short of processes now may have some later."""
        old.side.close()
        await self._call(lambda: self._supervisor.kill(old.name, "it is replaced"))
        await self._call(lambda: self._supervisor.events(0))
        await self._call(old.memory.close)
        slot = int(old.name.rpartition("-")[2])
        for pause_s in chain(PAUSES_S, repeat(PAUSES_S[-1])):
            try:
                await self._start(old.device, slot)
            except (NodeFailed, OSError, OtherSideGone, TimeoutError) as problem:
                told = f"{type(problem).__name__} {problem}".strip()
                _log.warning("%s does not start: %s. Again in %g s.", old.name, told, pause_s)
                await asyncio.sleep(pause_s)
            else:
                self.changed()
                return

    async def _start(self, device: str, slot: int) -> None:
        name = f"extract-{device}-{slot}"
        ours, theirs = Pipe()
        with theirs:
            await self._call(lambda: self._fork(name, theirs))
        stream = socket.socket(fileno=os.dup(ours.fileno()))
        ours.close()
        side = await ServerSide.over(stream)
        memory = self.devices[device].worker(name)
        try:
            pid = self._supervisor.pids[name]
            memory.take_in(pid)
            await side.send(Message(Kind.READY))
            with anyio.fail_after(START_S):
                first = await side.receive()
            if first.kind is not Kind.READY:
                raise OtherSideGone(first.content.decode(errors="replace"))
        except BaseException:
            side.close()
            await self._call(lambda: self._supervisor.kill(name, "it did not start"))
            await self._call(memory.close)
            raise
        self.all.append(Worker(name, device, memory, side, pid, memory.used_bytes))
        self.record.started += 1

    def _fork(self, name: str, theirs: Connection) -> None:
        with _huge_pages():  # of the process that all are forked from, which the first one starts
            self._supervisor.start(name, worker_main, theirs, self.threads)

    async def _call(self, function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


@cache
def _starting_thread() -> ThreadPoolExecutor:
    """The one thread of this process that starts workers, of whatever pool, and never ends:
    a supervisor is for one thread, and the kernel ends processes with the thread they are of."""
    return ThreadPoolExecutor(1, "garfield-split-workers")


def load_ahead() -> None:
    """Start the process that workers are forked from, with all that they need loaded.

    A pool does so by itself. Who starts other supervised processes first, as a demo does its
    store, calls this before: there is one such process, and what it has not loaded when it
    starts every worker must load by itself.
    """

    def start() -> None:
        Supervisor(preload=PRELOADED)
        with suppress(ConnectionError), _huge_pages():
            forkserver.ensure_running()

    _starting_thread().submit(start).result()


@contextmanager
def _huge_pages() -> Iterator[None]:
    """Let what is started in the block take its large pieces of memory in pages of 2 MiB.

    Workers give memory back at once, so each batch touches new pages: one fault for every 4 KiB
    of them took a quarter of a worker's time. glibc reads this only when a process begins. It must
    be the last variable, as a new one is: `setproctitle` has the room before it for a name.
    """
    name, told = "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"
    before = os.environ.pop(name, None)
    os.environ[name] = f"{before}:{told}" if before else told
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
