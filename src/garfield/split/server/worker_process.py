"""A worker from within: warm up, do one task after another, give the memory back in between.

What goes wrong in a task is told as a refusal; only a crash or a memory limit ends the process,
and `workers` then starts another.
"""

from __future__ import annotations

import ctypes
import gc
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from garfield.core.errors import RequestRefused
from garfield.runs.supervised import Channel
from garfield.split.server import messages
from garfield.split.server.messages import Kind, Message, OtherSideGone, WorkerSide
from garfield.split.wire import Refusal, as_body

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # as malloc.h has them

Work = Callable[[Mapping[str, Any], WorkerSide], Mapping[str, Any]]
"""What a task runs: sends its rows itself, and returns what DONE tells."""


def worker_main(channel: Channel, connection: Connection, threads: int) -> None:
    """Be a worker: warm up, then do one task after another until the server goes."""
    gc.freeze()  # what came by the fork stays shared: collecting would write to its pages
    steady_heap()
    side = WorkerSide(socket.socket(fileno=os.dup(connection.fileno())))
    connection.close()
    with suppress(OtherSideGone):
        side.receive()  # it holds our memory now: what is touched from here on counts
        works = _warm(threads)
        _give_back()
        side.send(Message(Kind.READY))
        while True:
            task = side.receive()
            if task.kind is Kind.TASK:  # an ABORT may come after its task has ended
                side.send(_done(task.told, works, side))


def _warm(threads: int) -> Mapping[str, Work]:
    """Import and run once what every task needs."""
    import torch

    from garfield.split.server import extraction, rehearsing, worker_training

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    rehearsing.warm_up()
    return {
        "extract": extraction.extract,
        "materialise": extraction.materialise,
        "rehearse": rehearsing.rehearse,
        "time-layers": rehearsing.time_layers,
        "train": worker_training.train,
        "rehearse-training": worker_training.rehearse_training,
    }


def _done(task: Mapping[str, Any], works: Mapping[str, Work], side: WorkerSide) -> Message:
    """Do a task, give its memory back, and say how it ended."""
    try:
        message = messages.of(Kind.DONE, works[task["work"]](task, side))
    except RequestRefused as refused:
        message = Message(Kind.REFUSED, as_body(refused))
    except OtherSideGone:
        raise
    except MemoryError:
        message = Message(Kind.REFUSED, as_body(_out_of_memory()))
    except Exception as failure:
        refusal = _out_of_memory() if _is_memory(failure) else _failed(failure)
        message = Message(Kind.REFUSED, as_body(refusal))
    _give_back()
    return message


def _is_memory(failure: Exception) -> bool:
    """torch has no exception of its own for a CPU that has no memory left."""
    return isinstance(failure, RuntimeError) and "can't allocate memory" in str(failure)


def _out_of_memory() -> RequestRefused:
    return Refusal.OUT_OF_MEMORY.error("The task needs more memory than was reserved for it.")


def _failed(failure: Exception) -> RequestRefused:
    """The kind of a failure goes to the client, its text may hold what is not for strangers."""
    return Refusal.FAILED.error(f"The task failed: {type(failure).__name__}.")


def _give_back() -> None:
    """Give back to the system what is free."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def steady_heap() -> None:
    """Make glibc give memory back as soon as it is free, so that what a batch needs is plain.

    `runs.process.keep_heap` is the opposite, and faster: it keeps what was freed. Here a batch
    that follows a larger one must not count as large, and one prediction must hold for all.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 128 << 10)
        libc.mallopt(_M_TRIM_THRESHOLD, 128 << 10)
        libc.mallopt(_M_ARENA_MAX, 2)
