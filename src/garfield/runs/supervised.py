"""A process that a supervisor started, seen from inside.

It is named after its node, leaves Ctrl-C to its supervisor, ends with exit code 0 when it
is told to (SIGTERM), and speaks JSON with its supervisor through a `Channel`. What it
cannot survive it tells as an event "failed", and ends with exit code 1.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable
from multiprocessing import util
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from garfield.core.blame import told
from garfield.core.events import Event
from garfield.runs.process import die_with_parent, end_on_sigterm, keep_heap, name_process

UNSENT_KEPT = 10_000  # events, while no supervisor is there to hear them
PROBE, ALIVE = b"", {"event": "alive"}
"""What a supervisor asks, and what every process answers, whatever it is doing.

No message is empty, as all of them are JSON: whatever a user sends, it is not a probe.
"""

Target: TypeAlias = Callable[..., object]
"""What a process runs: called with its `Channel` and the arguments it was started with.

It must be importable by name, as processes start from an empty interpreter.
"""


class Channel:
    """Events to the supervisor, and messages from it."""

    def __init__(
        self, name: str, connection: Connection, next_supervisor: Callable[[], Connection]
    ) -> None:
        """`next_supervisor` is called when this one is gone: it waits for another, or never
        returns, as it ends the process."""
        self.name = name
        self._connection: Connection | None = connection
        self._next_supervisor = next_supervisor
        self._sending, self._hearing = threading.Lock(), threading.RLock()
        self._unsent: deque[bytes] = deque(maxlen=UNSENT_KEPT)
        self._unheard: list[Any] = []
        self._take: Callable[[Any], None] | None = None
        threading.Thread(target=self._receive, daemon=True, name="garfield-supervisor").start()

    def send(self, event: Event) -> None:
        """Tell the supervisor; while there is none, the event waits for the next."""
        text = json.dumps(event).encode()  # Python's own JSON: a NaN arrives as a NaN
        with self._sending:
            self._unsent.append(text)
            self._flush()

    def unsent(self) -> list[Event]:
        """Events that no supervisor has heard."""
        with self._sending:
            return [json.loads(text) for text in self._unsent]

    def listen(self, take: Callable[[Any], None]) -> None:
        """Call `take` with every message of the supervisor, from a thread of its own."""
        with self._hearing:
            for message in self._unheard:
                take(message)
            self._take = take

    def _flush(self) -> None:
        while self._connection is not None and self._unsent:
            text = self._unsent.popleft()
            try:
                self._connection.send_bytes(text)
            except OSError:
                self._unsent.appendleft(text)
                self._connection = None  # `_receive` sees that it is gone, too

    def _receive(self) -> None:
        assert self._connection is not None
        connection = self._connection
        while True:
            try:
                received = connection.recv_bytes()
            except (EOFError, OSError):
                connection = self._next_supervisor()
                with self._sending:
                    self._connection = connection
                    self._flush()
                continue
            if received == PROBE:
                self.send(ALIVE)
                continue
            message = json.loads(received)
            with self._hearing:
                if self._take is None:
                    self._unheard.append(message)
                else:
                    self._take(message)


def run_attached(
    target: Target, name: str, connection: Connection, arguments: tuple[Any, ...]
) -> None:
    """Be a process that ends with its supervisor, however that ends."""
    die_with_parent()
    prepare(name)
    tempfile.tempdir = util.get_temp_dir()  # what libraries leave (TensorFlow does) is swept too
    if run(target, Channel(name, connection, lambda: os._exit(1)), arguments):
        raise SystemExit(1)


def prepare(name: str) -> None:
    """Make this process what every supervised one is, before it runs anything of its own."""
    name_process(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides what Ctrl-C means
    end_on_sigterm()
    keep_heap()


def run(target: Target, channel: Channel, arguments: tuple[Any, ...]) -> str | None:
    """Call the target; if it fails, tell the supervisor and return why."""
    try:
        target(channel, *arguments)
    except Exception as failure:
        why = told(failure)
        event = {"event": "failed", "node": channel.name, "error": why}
        channel.send({**event, "trace": traceback.format_exc()})
        return why
    return None
