"""One asyncio loop in one daemon thread: where a transport waits, so that its node need not.

The node's thread hands a coroutine over with `run` and blocks until it is
done; any thread may `post` a call. `close` cancels what is still running, so
nobody stays blocked, and leaves neither a thread nor a descriptor.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from garfield.core.errors import RunError

Result = TypeVar("Result")

_PATIENCE_S = 2.0  # for tasks to end by themselves


class LoopThread:
    """A loop that runs until closed."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(_report)
        self._name = name
        self._running: set[Future[Any]] = set()
        self._closed = False
        self._lock = threading.Lock()  # between handing work over and closing
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Have the loop do this, and wait for it."""
        with self._lock:
            if self._closed:
                work.close()
                raise RunError(f"{self._name} is closed.")
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
            self._running.add(future)
        try:
            return future.result()
        except CancelledError:
            raise RunError(f"{self._name} was closed meanwhile.") from None
        finally:
            future.cancel()  # if interrupted from the keyboard; otherwise it is done
            self._running.discard(future)

    def post(self, call: Callable[[], None]) -> None:
        """Have the loop call this soon; nothing, once closed."""
        with self._lock:
            if not self._closed:
                self.loop.call_soon_threadsafe(call)

    def close(self, cleanup: Coroutine[Any, Any, None]) -> None:
        """Cancel what runs, do the cleanup, stop the loop, end the thread."""
        with self._lock:
            if self._closed:
                cleanup.close()
                return
            self._closed = True
        for future in list(self._running):
            future.cancel()
        asyncio.run_coroutine_threadsafe(_finish(cleanup), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _finish(cleanup: Coroutine[Any, Any, None]) -> None:
    """Then let grpc's own tasks end: an event for a closed loop would trip another transport's."""
    await cleanup
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=_PATIENCE_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report as asyncio does, except for one harmless error of grpc.aio.

    All loops of a process share grpc's wake-up socket: when two wake for the same event, the
    second finds nothing to read.
    """
    with suppress(AttributeError):
        noise = isinstance(context.get("exception"), BlockingIOError)
        if noise and "_handle_events" in repr(context["handle"]):
            return
    loop.default_exception_handler(context)
