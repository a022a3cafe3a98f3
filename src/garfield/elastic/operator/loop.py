"""The loop that takes turns: soon after something has happened, and at the latest when one is due.

It lives in a thread of its own, beside kopf's. A turn that fails is told and taken again a moment
later; one that is overtaken by another operator waits until this one leads again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from garfield.core.errors import ClusterUnreachable, CoordinationUnreachable
from garfield.elastic.operator.job_writer import Overtaken
from garfield.elastic.operator.leadership import Leadership
from garfield.elastic.operator.metrics import Metrics
from garfield.elastic.operator.reconciler import Reconciler

_log = logging.getLogger("garfield.elastic.operator")
_AGAIN_S = 1.0


class Loop:
    """Use as a context: leaving it ends the thread after the turn that it is in."""

    def __init__(
        self,
        make: Callable[[float], Reconciler],
        leadership: Leadership | None,
        metrics: Metrics,
        settle_s: float,
    ) -> None:
        """`make` gives a reconciler for a time of leading; without a leadership it always leads."""
        self._make, self._leadership, self._metrics = make, leadership, metrics
        self._settle_s = settle_s
        self._happened, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="garfield-operator")

    def wake(self) -> None:
        """Say that something has happened."""
        self._happened.set()

    def __enter__(self) -> Loop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._happened.set()
        self._thread.join()

    def _run(self) -> None:
        reconciler: Reconciler | None = None
        while not self._ended.is_set():
            leads = self._leadership is None or self._leadership.is_leader
            self._metrics.leads(leads)
            if not leads:
                reconciler = None
                self._ended.wait(_AGAIN_S / 5)
                continue
            if reconciler is None:
                reconciler = self._make(time.time())
                self._happened.set()
            self._wait(reconciler.next_s() - time.time())
            if not self._ended.is_set():
                self._take_turn(reconciler)

    def _wait(self, at_most_s: float) -> None:
        """Wait for something to happen, then a little for what belongs to it."""
        look_s = _AGAIN_S if self._leadership is not None else at_most_s
        if self._happened.wait(max(0.0, min(at_most_s, look_s))):
            self._ended.wait(self._settle_s)

    def _take_turn(self, reconciler: Reconciler) -> None:
        is_due = reconciler.next_s() <= time.time()
        if not is_due and not self._happened.is_set():
            return  # only to look whether we still lead
        self._happened.clear()
        try:
            with self._metrics.turn.time():
                reconciler.turn(time.time())
        except Overtaken as problem:
            _log.info("Another operator leads: %s", problem)
            self._again()
        except (ClusterUnreachable, CoordinationUnreachable) as problem:
            _log.warning("%s Jobs go on as they are.", problem)
            self._again()
        except Exception:
            _log.exception("A turn failed, and is taken again.")
            self._metrics.turn_failed()
            self._again()

    def _again(self) -> None:
        self._ended.wait(_AGAIN_S)
        self._happened.set()
