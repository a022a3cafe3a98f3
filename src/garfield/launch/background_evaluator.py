"""Evaluate a server's model beside its training, on a copy, in a thread of its own.

10,000 images of CIFAR-10 take CifarNet 12 s of a core. A server that evaluated between
two steps kept its peers waiting for longer than `timeout_s`: they took it for dead, and
of the two servers left one lied, so that a run which tolerates one liar was lost.

A short evaluation is waited for all the same: nobody else computes meanwhile, so it is
over sooner, and none is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any, TypeVar

from garfield.adapters.contract import Adapter
from garfield.nodes.server import Server

AccuracyAndLoss = tuple[float, float]
"""Share of right predictions, mean loss."""
T = TypeVar("T")


class BackgroundEvaluator:
    """Makes one evaluation at a time. Use as a context: leaving it gives up what is not done."""

    def __init__(self, new_model: Callable[[], Adapter], patience_s: float) -> None:
        """`new_model` makes the one that is evaluated; training waits for evaluations until one
        takes longer than `patience_s`, and for none from then on."""
        self._new_model, self._patience_s = new_model, patience_s
        self._model: Adapter | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="garfield-evaluation")
        self._pending: tuple[Mapping[str, Any], Future[AccuracyAndLoss]] | None = None
        self._stopped = threading.Event()

    def __enter__(self) -> BackgroundEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()  # it ends by itself, with its present piece; others have work to do
        self._pool.shutdown(wait=False, cancel_futures=True)

    def begin(self, server: Server, about: Mapping[str, Any]) -> None:
        """Evaluate what the server's model is now; the result before must have been taken.

        `about` is what `result` gives besides: of which step it is, say.
        """
        assert self._pending is None
        if self._model is None:  # made here: a model draws from the one random state there is
            self._model = self._new_model()
        model = self._model
        model.write(server.read_model())
        work = self._pool.submit(lambda: model.evaluate(_until(self._stopped, server.test)))
        self._pending = about, work
        if not self._done(self._patience_s):
            self._patience_s = 0.0

    def busy(self) -> bool:
        """Whether the evaluation before is not done."""
        return self._pending is not None and not self._done(0.0)

    def result(self, *, patiently: bool = False) -> dict[str, Any] | None:
        """Take the result of the evaluation that is done; with `patiently`, wait for it first.

        None if there is none, or it was taken already.
        """
        if self._pending is None or not self._done(None if patiently else 0.0):
            return None
        (about, work), self._pending = self._pending, None
        accuracy, loss = work.result()
        return {**about, "accuracy": accuracy, "loss": loss}

    def _done(self, wait_s: float | None) -> bool:
        assert self._pending is not None
        return bool(wait_for([self._pending[1]], wait_s).done)


class _Stopped(Exception):  # noqa: N818 (caught by nobody: whoever would wait for it has left)
    """The run has ended before the evaluation."""


def _until(stopped: threading.Event, pieces: Iterable[T]) -> Iterator[T]:
    """Pass pieces on until the run is over."""
    for piece in pieces:
        if stopped.is_set():
            raise _Stopped
        yield piece
