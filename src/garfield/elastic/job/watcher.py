"""Reads a job's agreement beside the training, so that no step waits for it.

It also does what can be done before a change: the first member of the next generation opens its
store, while all go on training. Reports are sent from here too. If the agreement cannot be
reached, the last view stays: nothing changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from garfield.core.errors import CoordinationUnreachable
from garfield.elastic.job.coordination import (
    Coordination,
    Generation,
    JobView,
)
from garfield.elastic.job.group import OfferedStore

_log = logging.getLogger("garfield.elastic.job")


class Watcher:
    """One thread of a worker."""

    def __init__(
        self,
        coordination: Coordination,
        member: str,
        poll_s: float,
        open_store: Callable[[str], OfferedStore] = OfferedStore,
    ) -> None:
        self._coordination, self._member, self._poll_s = coordination, member, poll_s
        self._open_store = open_store
        self.view = JobView()
        self._reachable = True
        self._report: Mapping[str, Any] | None = None
        self._offer: tuple[int, OfferedStore] | None = None
        self._offering = threading.Lock()
        self._wake, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, daemon=True, name="garfield-elastic")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End after a last report."""
        self._ended = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._offer = None

    def report(self, measured: Mapping[str, Any], *, at_once: bool = True) -> None:
        """Send this, now or with the next look, unless a later report overtakes it."""
        self._report = measured
        if at_once:
            self._wake.set()

    def ready_generation(self, current: Generation) -> int:
        """The number of the generation to be in, as far as is known here."""
        view = self.view
        newer = view.generation.number > current.number and view.is_ready(current)
        return view.generation.number if newer else current.number

    def offer(self, generation: Generation) -> OfferedStore:
        """The store of a generation whose first member this is, opened if it is not yet."""
        with self._offering:
            if self._offer is None or self._offer[0] != generation.number:
                opened = self._open_store(self._coordination.host)
                self._coordination.arrive(generation.number, self._member, opened.address)
                self._offer = (generation.number, opened)
            return self._offer[1]

    def _run(self) -> None:
        while True:
            try:
                self._look()
                self._reachable = True
            except CoordinationUnreachable as problem:
                if self._reachable:
                    _log.warning("%s Training goes on as it is.", problem)
                self._reachable = False
            if self._ended:
                return
            self._wake.wait(self._poll_s)
            self._wake.clear()

    def _look(self) -> None:
        report, self._report = self._report, None
        if report is not None:
            self._coordination.report(self._member, report)
        view = self._coordination.read()
        newest = view.generation
        is_first = len(newest.members) > 1 and newest.rank_of(self._member) == 0
        if is_first and newest.number > view.begun and not view.store:
            self.offer(newest)
            view = self._coordination.read()
        self.view = view
