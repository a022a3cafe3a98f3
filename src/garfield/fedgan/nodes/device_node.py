"""A device behind a transport: it hears of turns, trains when it is chosen, and offers the result.

It asks all servers at once for the newest turn that is later than the last it has heard of. Turns
grow with the lease of whoever leads (`turn.py`), so a server that leads no longer is not followed
once its successor was heard of. Work that nobody fetches, as its server has died, is forgotten with
the next turn.

What a device lets others have is its metadata, its reports and what it was asked to train: no
sample, and nothing to anybody but its servers. Without labels it first sees to the clusters that
an announcement tells of (`device_clusters.py`), and only then declares what it has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from garfield.core.errors import BudgetSpent, InputError, RunError
from garfield.core.silence import Reason
from garfield.fedgan.averaging import State
from garfield.fedgan.device import DeviceData, Task, Training, Update
from garfield.fedgan.metadata import DeviceMetadata
from garfield.fedgan.nodes.device_clusters import DeviceClusters
from garfield.fedgan.nodes.messages import (
    CENTROIDS,
    CLUSTERS,
    DEVICES_SAY,
    METADATA,
    REPORT,
    STATE,
    SUMS,
    TASK,
    UPDATE,
    Announcement,
    ClusterNotice,
    Report,
    later_than,
)
from garfield.fedgan.nodes.secure_round import DEVICES_SAY as SECURE_DEVICES_SAY
from garfield.fedgan.nodes.secure_round import MASKED, SecureDeviceRound
from garfield.fedgan.nodes.state_vector import StateLayout
from garfield.nodes.outbox import Outbox
from garfield.transport.contract import Key, Payload, Transport, first
from garfield.transport.documents import (
    Document,
    DocumentReplies,
    document_kind,
    pull_documents,
)

_log = logging.getLogger(__name__)
_LOOK_S, _GLANCE_S = 1.0, 0.1
"""How often, and for how long, to look for a later turn while a server is silent; the other way
round while it cannot be reached."""
_LOST = (Reason.UNREACHABLE, Reason.DISCONNECTED)
_COMING = (Reason.TOO_SLOW, Reason.STALLED)
_GOODBYE_S = 2.0  # for a server to note that its end was heard of, if it is still there


@dataclass(frozen=True)
class DeviceLimits:
    """How long a device waits."""

    ask_s: float = 30.0
    """For a turn, before it asks again."""
    give_up_s: float = 600.0
    """While its server, or any that may lead, cannot be reached. One that is there and says nothing
    has its reasons: devices of a round that are slower, or have not joined."""


class _TurnOver(Exception):  # noqa: N818 (a signal within this file)
    """There is nothing more to do in this turn."""


class DeviceNode:
    """One device."""

    def __init__(
        self,
        number: int,
        trainer: Training,
        data: DeviceData,
        transport: Transport,
        servers: Sequence[str],
        *,
        layout: StateLayout,
        metadata: DeviceMetadata | DeviceClusters,
        limits: DeviceLimits | None = None,
        secure: bool = False,
        version: int = 0,
    ) -> None:
        """`servers` are the names of all that may lead; `metadata` is what it declares first, as
        that version, or what it learns that from.

        With `secure`, its networks leave it behind masks alone, whatever a server asks for.
        """
        self.number, self.data = number, data
        self.turns_trained = 0
        self._trainer, self._transport, self._servers = trainer, transport, list(servers)
        self._layout, self._limits = layout, limits or DeviceLimits()
        self._turn, self._version, self._secure = 0, -1, secure
        self._clusters = metadata if isinstance(metadata, DeviceClusters) else None
        self._clustered = 0  # the turn whose clusters were seen to
        self._outbox = Outbox()
        said = DEVICES_SAY | (SECURE_DEVICES_SAY if secure else frozenset())
        self._outbox.audience = lambda asker, kind: asker in self._servers and kind in said
        if isinstance(metadata, DeviceMetadata):
            self.declare(metadata, version)
        transport.serve(self._outbox)

    def declare(self, metadata: DeviceMetadata, version: int = 0) -> None:
        """Say what this device has, now or from now on; servers hear of it with its next report.

        It is of that version at least, and of a later one than what was declared before.
        """
        payload = METADATA.to_payload(metadata.as_json())
        self._version = max(self._version + 1, version)
        self._outbox.publish(Key(METADATA.name, self._version), payload)

    def run(self) -> str:
        """Take part until it is over; why it is. RunError if no server is heard of for long."""
        while True:
            server, announced = self._next()
            if announced.ended is not None:
                self._newest([server], _GOODBYE_S)  # so the server knows that this was heard
                return announced.ended
            if announced.clusters not in (None, self._clustered):
                self._see_to_clusters(server, announced.clusters)
            if self.number in announced.devices:
                self._take_part(server)

    def _next(self) -> tuple[str, Announcement]:
        """The next turn that this device hears of, and by whom."""
        heard = time.monotonic()
        while (left_s := heard + self._limits.give_up_s - time.monotonic()) > 0:
            found = self._newest(self._servers, min(self._limits.ask_s, left_s))
            steps = found.replies.steps
            if steps:
                server = max(steps, key=steps.__getitem__)
                self._turn = steps[server]
                try:
                    return server, Announcement.read(found.documents[server])
                except InputError as problem:
                    _log.warning("%s says what is no turn: %s", server, problem)
            if any(why.reason.may_pass for why in found.replies.silent.values()):
                heard = time.monotonic()
        raise RunError(
            f"{self._transport.name} has reached none of {', '.join(self._servers)} for "
            f"{self._limits.give_up_s:g} s, and gives up. Start it again when they are back."
        )

    def _see_to_clusters(self, server: str, at: int) -> None:
        """Count images by the clusters that are published, or send what they are fitted to."""
        try:
            if self._clusters is None:
                raise InputError(f"{server} publishes clusters, and this device has labels.")
            notice = ClusterNotice.read(self._document(server, Key(CLUSTERS.name, at)))
            self._clusters.check(server, notice)
            centroids = None
            if notice.digest is not None:
                row = self._row(server, Key(CENTROIDS.name, at), self._clusters.length)
                centroids = self._clusters.centroids(server, notice, row)
            if centroids is not None and notice.final:
                self.data, metadata = self._clusters.labelled(server, centroids)
                self._clustered = at
                self.declare(metadata, version=at)
            else:
                sums = self._clusters.sums(server, notice, centroids)
                self._outbox.publish(Key(SUMS.name, at), sums)
        except _TurnOver as over:
            _log.info("Turn %d is over: %s", self._turn, over)
        except InputError as problem:
            _log.warning("%s asks for what is not done: %s", server, problem)
            self._outbox.leave_out(Key(SUMS.name, at))

    def _take_part(self, server: str) -> None:
        """Fetch task and state, train, and offer what came of it."""
        hidden = None
        try:
            if self._clusters is not None and not self._clustered:
                raise InputError("there are no clusters yet to count images by")
            if self._secure:
                hidden = SecureDeviceRound(
                    self._transport.name, self.number, self._outbox, self._turn,
                    lambda key: self._document(server, key),
                )  # fmt: skip
                hidden.agree()
            task, state = self._fetch(server)
            update = self._trainer.train(self.data, state, task)
            self.turns_trained += 1
            self._report(update)
            if hidden is None:
                vector = self._layout.to_vector(update.state)
                self._outbox.publish(Key(UPDATE.name, self._turn), vector, copy=False)
            else:
                hidden.send(self._layout.change(state, update.state))
                hidden.reveal()
        except BudgetSpent as problem:
            _log.info("Turn %d is not for this device: %s", self._turn, problem)
            self._report(Update({}, 0.0, 0.0, spent=True))
            self._outbox.leave_out(Key(UPDATE.name, self._turn))
            self._outbox.leave_out(Key(MASKED.name, self._turn))
        except _TurnOver as over:
            _log.info("Turn %d is over: %s", self._turn, over)
        except (InputError, RunError) as problem:  # the next turn may go well
            _log.warning("%s asks for what cannot be done: %s", server, problem)

    def _report(self, update: Update) -> None:
        report = Report(
            update.generator_loss, update.discriminator_loss, self._version, update.epsilon,
            update.spent,
        )  # fmt: skip
        self._outbox.publish(Key(REPORT.name, self._turn), REPORT.to_payload(report.as_json()))

    def _fetch(self, server: str) -> tuple[Task, State]:
        document = self._document(server, Key(TASK.name, self._turn, self.number))
        row = self._row(server, Key(STATE.name, self._turn), self._layout.length)
        return Task.read(document), self._layout.to_state(row)

    def _document(self, server: str, key: Key) -> Document:
        kind = document_kind(key)
        return kind.read(self._row(server, key, kind.length))

    def _row(self, server: str, key: Key, length: int) -> Payload:
        """What the server has under a key of this turn; _TurnOver if the turn is over.

        It is, too, as soon as a later one is heard of: a server that is frozen, or cut off, must
        not keep the device from whoever leads now. One that cannot be reached has died, most
        likely, so then it is the others who are listened to, and this one is tried in between.
        What has begun to come is asked for again from its beginning, with twice the time: over a
        slow link all of it comes in the end, after three times as long at most.

        How long a turn may take is for the server to say: as long as it is there, it is waited for.
        """
        others = [name for name in self._servers if name != server]
        give_up_s = self._limits.give_up_s
        look_s, glance_s = (_LOOK_S, _GLANCE_S) if others else (give_up_s, 0.0)
        heard = time.monotonic()
        while time.monotonic() < heard + give_up_s:
            replies = self._transport.pull(
                [server], key, length=length, until=first(1), timeout_s=look_s
            )
            if replies.rows:
                return replies.rows[0]
            why = replies.silent[server]
            if replies.gone or why.reason is Reason.REFUSED:
                raise _TurnOver(f"{key.kind}: {why}")
            if why.reason.may_pass:
                heard = time.monotonic()
            if why.reason in _COMING:
                look_s, glance_s = 2 * max(look_s, _LOOK_S), _GLANCE_S
            elif others:
                is_lost = why.reason in _LOST
                look_s, glance_s = (_GLANCE_S, _LOOK_S) if is_lost else (_LOOK_S, _GLANCE_S)
            if others and self._newest(others, glance_s).replies.steps:
                raise _TurnOver(f"a later one was announced while {server} was silent")
        raise _TurnOver(f"{key.kind} did not come: {server} was not reached for {give_up_s:g} s")

    def _newest(self, servers: Sequence[str], timeout_s: float) -> DocumentReplies:
        """Announcements that are later than what was heard of."""
        key = later_than(self._turn)
        return pull_documents(self._transport, servers, key, until=first(1), timeout_s=timeout_s)
