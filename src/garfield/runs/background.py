"""One piece of work at a time beside a run, in a thread of its own.

Judging a model takes seconds: 10,000 images of CIFAR-10 take CifarNet 12 s of a core. Whoever did
that between two steps would keep others waiting. A short piece of work is waited for all the same:
nobody else computes meanwhile, so it is over sooner, and none is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class BackgroundWork(Generic[R]):
    """Does one thing at a time. Use as a context: leaving it gives up what is not done."""

    def __init__(self, patience_s: float, thread_name: str) -> None:
        """Work is waited for until a piece of it takes longer than `patience_s`, and not from
        then on."""
        self._patience_s = patience_s
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=thread_name)
        self._pending: tuple[Mapping[str, Any], Future[R]] | None = None
        self._stopped = threading.Event()

    def __enter__(self) -> BackgroundWork[R]:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_up()

    def give_up(self) -> None:
        """What is under way ends by itself, with its present piece; others have work to do."""
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def begin(self, work: Callable[[], R], about: Mapping[str, Any]) -> None:
        """Do this; the result before must have been taken.

        `about` is what `result` gives besides: of which step it is, say. What takes long should
        go through its pieces by `until_given_up`.
        """
        assert self._pending is None
        self._pending = about, self._pool.submit(work)
        if not self._done(self._patience_s):
            self._patience_s = 0.0

    def busy(self) -> bool:
        """Whether the work before is not done."""
        return self._pending is not None and not self._done(0.0)

    def result(self, *, patiently: bool = False) -> tuple[Mapping[str, Any], R] | None:
        """Take what was found, and what it is about; with `patiently`, wait for it first.

        None if there is nothing, or it was taken already. Raises what the work raised.
        """
        if self._pending is None or not self._done(None if patiently else 0.0):
            return None
        (about, work), self._pending = self._pending, None
        return about, work.result()

    def until_given_up(self, pieces: Iterable[T]) -> Iterator[T]:
        """Pass pieces on until nobody wants the result any more."""
        for piece in pieces:
            if self._stopped.is_set():
                raise _GivenUp
            yield piece

    def _done(self, wait_s: float | None) -> bool:
        assert self._pending is not None
        return bool(wait_for([self._pending[1]], wait_s).done)


class _GivenUp(Exception):  # noqa: N818 (caught by nobody: whoever would wait for it has left)
    """The run has ended before the work."""
