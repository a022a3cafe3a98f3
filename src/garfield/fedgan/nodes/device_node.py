"""A device behind a transport: it hears of turns, trains when it is chosen, and offers the result.

It asks all servers at once for the newest turn that is later than the last it has heard of. Turns
grow with the lease of whoever leads (`turn.py`), so a server that leads no longer is not followed
once its successor was heard of. Work that nobody fetches, as its server has died, is forgotten with
the next turn.

What a device lets others have is its metadata, its reports and what it was asked to train: no
sample, and nothing to anybody but its servers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from garfield.core.errors import InputError, RunError
from garfield.fedgan.averaging import State
from garfield.fedgan.device import DeviceData, Task, Trainer
from garfield.fedgan.metadata import DeviceMetadata
from garfield.fedgan.nodes.messages import (
    DEVICES_SAY,
    METADATA,
    REPORT,
    STATE,
    TASK,
    UPDATE,
    Announcement,
    Report,
    later_than,
)
from garfield.fedgan.nodes.state_vector import StateLayout
from garfield.nodes.outbox import Outbox
from garfield.transport.contract import Key, Transport, first
from garfield.transport.documents import pull_documents

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeviceLimits:
    """How long a device waits."""

    ask_s: float = 30.0
    """For a turn, before it asks again."""
    fetch_s: float = 120.0
    """For a task and its state."""
    give_up_s: float = 600.0
    """For any server to say anything at all."""


class DeviceNode:
    """One device."""

    def __init__(
        self,
        number: int,
        trainer: Trainer,
        data: DeviceData,
        transport: Transport,
        servers: Sequence[str],
        *,
        layout: StateLayout,
        metadata: DeviceMetadata,
        limits: DeviceLimits | None = None,
    ) -> None:
        """`servers` are the names of all that may lead; `metadata` is what it declares first."""
        self.number, self.data = number, data
        self.turns_trained = 0
        self._trainer, self._transport, self._servers = trainer, transport, list(servers)
        self._layout, self._limits = layout, limits or DeviceLimits()
        self._turn, self._version = 0, -1
        self._outbox = Outbox()
        self._outbox.audience = lambda asker, kind: asker in self._servers and kind in DEVICES_SAY
        self.declare(metadata)
        transport.serve(self._outbox)

    def declare(self, metadata: DeviceMetadata) -> None:
        """Say what this device has, now or from now on; servers hear of it with its next report."""
        payload = METADATA.to_payload(metadata.as_json())
        self._version += 1
        self._outbox.publish(Key(METADATA.name, self._version), payload)

    def run(self) -> str:
        """Take part until it is over; why it is. RunError if no server is heard of for long."""
        while True:
            server, announced = self._next()
            if announced.ended is not None:
                return announced.ended
            if self.number in announced.devices:
                self._take_part(server)

    def _next(self) -> tuple[str, Announcement]:
        """The next turn that this device hears of, and by whom."""
        deadline = time.monotonic() + self._limits.give_up_s
        while (left_s := deadline - time.monotonic()) > 0:
            found = pull_documents(
                self._transport, self._servers, later_than(self._turn), until=first(1),
                timeout_s=min(self._limits.ask_s, left_s),
            )  # fmt: skip
            steps = found.replies.steps
            if steps:
                server = max(steps, key=steps.__getitem__)
                self._turn = steps[server]
                try:
                    return server, Announcement.read(found.documents[server])
                except InputError as problem:
                    _log.warning("%s says what is no turn: %s", server, problem)
        raise RunError(
            f"{self._transport.name} has heard of none of {', '.join(self._servers)} for "
            f"{self._limits.give_up_s:g} s, and gives up. Start it again when they are back."
        )

    def _take_part(self, server: str) -> None:
        """Fetch task and state, train, and offer what came of it."""
        fetched = self._fetch(server)
        if fetched is None:
            return
        task, state = fetched
        update = self._trainer.train(self.data, state, task)
        self.turns_trained += 1
        report = Report(update.generator_loss, update.discriminator_loss, self._version)
        self._outbox.publish(Key(REPORT.name, self._turn), REPORT.to_payload(report.as_json()))
        vector = self._layout.to_vector(update.state)
        self._outbox.publish(Key(UPDATE.name, self._turn), vector, copy=False)

    def _fetch(self, server: str) -> tuple[Task, State] | None:
        """None if the server is gone, or this turn of it is over."""
        key, wait_s = Key(TASK.name, self._turn, self.number), self._limits.fetch_s
        told = pull_documents(self._transport, [server], key, until=first(1), timeout_s=wait_s)
        if server not in told.documents:
            _log.info("No task of turn %d: %s", self._turn, told.replies.silent.get(server))
            return None
        replies = self._transport.pull(
            [server], Key(STATE.name, self._turn), length=self._layout.length, until=first(1),
            timeout_s=wait_s,
        )  # fmt: skip
        if not replies.rows:
            _log.info("No state of turn %d: %s", self._turn, replies.silent.get(server))
            return None
        try:
            task = Task.read(told.documents[server])
            return task, self._layout.to_state(replies.rows[0])
        except InputError as problem:
            _log.warning("%s asks for what cannot be done: %s", server, problem)
            return None
