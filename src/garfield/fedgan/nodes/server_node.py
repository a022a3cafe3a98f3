"""A server behind a transport: of several, one leads, and each may have to.

    wait for the lease ─▶ load what was committed, or ask devices what they have (without labels:
                          by the clusters that are published first, `server_clusters.py`)
    each turn: begin (the database counts) ─▶ plan ─▶ announce ─▶ collect ─▶ join ─▶ commit
    lease lost ─▶ wait for it again; all rounds over ─▶ say so to devices

What is committed is all that another server needs (`LearningState`), so a primary that is killed
loses the round in flight and nothing else. Devices that are not done in time are left out of a
round, or the round is abandoned, as `late` says; either way they were asked, and others come next.
A round that ended its server is drawn anew (`round_seed`), so it cannot do so for ever.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from garfield.core.errors import (
    ConfigError,
    DivergedError,
    InputError,
    LeaseLost,
    QuorumError,
    RunError,
)
from garfield.fedgan.clustering import PublishedClusters
from garfield.fedgan.device import Update
from garfield.fedgan.gan import Gan
from garfield.fedgan.nodes.answers import (
    SHORT_S,
    Answers,
    declared_anew,
    pull_metadata,
    pull_reports,
    pull_updates,
)
from garfield.fedgan.nodes.committed import kept_state
from garfield.fedgan.nodes.messages import (
    ABOUT,
    STATE,
    TASK,
    TURN,
    About,
    Announcement,
    Report,
)
from garfield.fedgan.nodes.secure_round import SecureServerRound, weights_of
from garfield.fedgan.nodes.server_clusters import ServerClusters
from garfield.fedgan.nodes.server_outbox import ServerOutbox
from garfield.fedgan.nodes.server_start import ServerStart
from garfield.fedgan.nodes.state_vector import StateLayout
from garfield.fedgan.nodes.turn import turn
from garfield.fedgan.server import FederatedServer, RoundPlan, RoundRecord
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.state import Primary, StateDatabase, round_seed, wait_to_lead
from garfield.transport.contract import Key, Transport

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerLimits:
    """How long a server waits, and for whom."""

    round_s: float = 60.0
    """For the devices of a round; who is later is left out of it."""
    late: str = "complete"
    """Without some of them: complete the round, or abort it."""
    join_s: float = 120.0
    """For all devices to say what they have, before the first round."""
    lease_s: float = 10.0
    """So long after a primary was last heard of by the database, another takes over."""
    failures: int = 10
    """Rounds in a row in which nothing is learned, before it is given up."""
    linger_s: float = 10.0
    """At the end, for devices to hear of it."""


class ServerNode:
    """One server."""

    def __init__(
        self,
        name: str,
        gan: Gan,
        about: About,
        settings: FedganSettings,
        transport: Transport,
        devices: Sequence[str],
        database: StateDatabase,
        limits: ServerLimits | None = None,
        public_clusters: Callable[[], PublishedClusters] | None = None,
    ) -> None:
        """`devices` are names, in the order of their numbers; `public_clusters` fits clusters
        without asking them."""
        self._name, self._about, self._settings = name, about, settings
        self._transport, self._devices, self._database = transport, list(devices), database
        self._limits = limits or ServerLimits()
        self._versions = dict.fromkeys(self._devices, 0)
        self._outbox = ServerOutbox(self._devices)
        self._outbox.publish(Key(ABOUT.name, 0), ABOUT.to_payload(about.as_json()))
        self._outbox.shared_copy = transport.shared_copy
        self._clusters = None
        if about.clusters is not None:
            self._clusters = ServerClusters(
                transport, self._outbox, self._devices, about, settings.training.seed
            )
        self._start = ServerStart(
            transport, self._devices, gan, about, settings, self._clusters, public_clusters,
            self._limits.join_s,
        )  # fmt: skip
        self._turns = itertools.count(1)
        transport.serve(self._outbox)

    def run(self, ended: threading.Event | None = None) -> None:
        """Lead whenever it is this server's turn, until all rounds are over or `ended` is set."""
        ended = ended or threading.Event()
        while not ended.is_set():
            primary = wait_to_lead(
                self._database, self._name, lease_s=self._limits.lease_s, ended=ended
            )
            if primary is None:
                return
            try:
                with primary:
                    self._lead(primary, ended)
                return
            except LeaseLost as lost:
                _log.warning("%s leads no longer: %s", self._name, lost)

    # -- leading --------------------------------------------------------------------------

    def _lead(self, primary: Primary, ended: threading.Event) -> None:
        self._turns = itertools.count(1)
        server = self._begun(primary)
        layout = StateLayout.of(server.state)
        failures, why = 0, "all rounds are over"
        while True:
            at = self._next_turn(primary)
            if server.over:
                why = "too few devices can pay for another round"
            if server.over or server.round >= self._settings.training.rounds or ended.is_set():
                if not ended.is_set():
                    self._say_that_it_is_over(server.round, at, why)
                return
            record = self._hold(primary, server, layout, at)
            failures = 0 if record.took_part else failures + 1
            if failures >= min(self._limits.failures, self._settings.training.rounds):
                told = "; ".join(dict.fromkeys(record.refused.values()))
                at = self._next_turn(primary)
                self._say_that_it_is_over(server.round, at, f"nobody takes part: {told}")
                raise QuorumError(
                    f"Nothing was learned in {failures} rounds in a row, the last because: {told}. "
                    "What was learned before is kept: resume when devices are back.", {}
                )  # fmt: skip

    def _begun(self, primary: Primary) -> FederatedServer:
        """What was committed, or what devices say; devices hear of it if that cannot be."""
        latest = primary.latest()

        def turns() -> int:
            return self._next_turn(primary)

        if latest is not None:
            server, self._versions = self._start.again(latest, primary.history(), turns)
            return server
        try:
            server, self._versions = self._start.anew(turns)
        except (QuorumError, InputError, ConfigError) as problem:
            primary.check()  # who was frozen meanwhile is not answered, as another leads
            absent = problem.silent if isinstance(problem, QuorumError) else ()
            self._outbox.waits_for = frozenset(self._devices).difference(absent)
            self._say_that_it_is_over(0, turns(), f"it cannot begin: {problem}")
            raise
        self._commit(primary, server, None)
        return server

    def _next_turn(self, primary: Primary) -> int:
        return turn(primary.token.number, next(self._turns))

    def _say_that_it_is_over(self, rounds: int, at: int, why: str) -> None:
        announced = Announcement(rounds, ended=why[:200].encode("ascii", "replace").decode())
        self._outbox.last_turn = at
        self._outbox.publish(Key(TURN.name, at), TURN.to_payload(announced.as_json()))
        self._outbox.wait_until_told(self._limits.linger_s)

    def _hold(
        self, primary: Primary, server: FederatedServer, layout: StateLayout, at: int
    ) -> RoundRecord:
        """One round, committed."""
        number, began = server.round, time.monotonic()
        tries = primary.begin(number + 1)
        seed = server.rules.seed
        plan = server.plan(round_seed(seed, number, tries) if tries else None)
        self._announce(server, plan, layout, at)
        if self._about.secure_aggregation:
            record, reports = self._summed(server, plan, layout, at, began)
        else:
            names = {self._devices[device]: device for device in plan.devices}
            answers = pull_updates(self._transport, names, layout, at, self._limits.round_s)
            record, reports = self._joined(server, plan, answers), answers.reports
        accounts = {device: (each.epsilon, each.spent) for device, each in reports.items()}
        record = server.with_accounts(record, accounts)
        self._learn_metadata(server, reports)
        self._commit(primary, server, self._event(server, record, primary, began))
        return record

    def _event(
        self, server: FederatedServer, record: RoundRecord, primary: Primary, began: float
    ) -> dict[str, Any]:
        """What metrics will tell of a round."""
        moved = server.bytes_per_device()
        return {
            **record.as_event(), "seconds": time.monotonic() - began, "server": self._name,
            "token": primary.token.number, "bytes_per_device": float(moved.mean()),
            "most_bytes_of_a_device": int(moved.max()),
        }  # fmt: skip

    def _commit(
        self, primary: Primary, server: FederatedServer, event: dict[str, Any] | None
    ) -> None:
        clusters = None if self._clusters is None else self._clusters.published
        primary.commit(
            kept_state(server, self._about, self._settings, self._versions, event, clusters)
        )

    def _announce(
        self, server: FederatedServer, plan: RoundPlan, layout: StateLayout, at: int
    ) -> None:
        """The turn last: whoever hears of it finds the rest."""
        self._outbox.publish(Key(STATE.name, at), layout.to_vector(server.state), copy=False)
        for device, task in zip(plan.devices, plan.tasks, strict=True):
            self._outbox.publish(Key(TASK.name, at, device), TASK.to_payload(task.as_json()))
        clusters = None if self._clusters is None else self._clusters.turn
        announced = Announcement(plan.round, frozenset(plan.devices), clusters=clusters)
        self._outbox.publish(Key(TURN.name, at), TURN.to_payload(announced.as_json()))

    def _joined(self, server: FederatedServer, plan: RoundPlan, answers: Answers) -> RoundRecord:
        states, reports, silent = answers.states, answers.reports, answers.silent
        updates = [
            Update(states[d], reports[d].generator_loss, reports[d].discriminator_loss)
            if d in states and d in reports else None
            for d in plan.devices
        ]  # fmt: skip
        if self._limits.late == "abort" and None in updates:
            return server.abandon(plan, silent)
        try:
            return server.finish(plan, updates, silent)
        except QuorumError as problem:  # of a rule that has too few
            _log.warning("Round %d is abandoned: %s", plan.round, problem)
            return server.abandon(plan, silent)
        except RunError:
            if any(update is not None for update in updates):
                raise
            return server.abandon(plan, silent)

    def _summed(
        self, server: FederatedServer, plan: RoundPlan, layout: StateLayout, at: int, began: float
    ) -> tuple[RoundRecord, dict[int, Report]]:
        """A round in which no more than the sum of what devices changed is seen."""
        names = {self._devices[device]: device for device in plan.devices}
        shares = {self._devices[d]: share for d, share in server.shares_of(plan).items()}
        weights = weights_of(shares)
        round_s = self._limits.round_s
        hidden = SecureServerRound(
            self._transport, self._outbox, at, layout.length,
            lambda: round_s - (time.monotonic() - began), min(SHORT_S, round_s / 4),
        )  # fmt: skip
        reports: dict[int, Report] = {}
        silent: dict[int, str] = {}
        try:
            hidden.agree(weights, names)
            arrived = hidden.collect()
            if self._limits.late == "abort" and len(arrived) < len(names):
                raise RunError("not all devices were in time")
            there = {name: names[name] for name in arrived}
            reports = pull_reports(self._transport, there, at, silent)
            state = layout.changed(server.state, hidden.mean(weights))
            losses = {names[name]: _losses(reports.get(names[name])) for name in arrived}
            refused = {names[name]: why for name, why in hidden.silent.items()}
            record = server.finish_joined(plan, losses, state, refused)
            used = [weights[self._devices[device]] for device in record.took_part]
            counted = tuple(weight / sum(used) for weight in used)
            return replace(record, weights=counted), reports
        except DivergedError:
            raise
        except (RunError, InputError) as problem:
            _log.warning("Round %d is abandoned: %s", plan.round, problem)
            # of all: whose fault it is, if anybody's, is not known
            refused = dict.fromkeys(plan.devices, str(problem))
            refused |= {names[name]: why for name, why in hidden.silent.items()}
            return server.abandon(plan, refused), reports

    # -- metadata -------------------------------------------------------------------------

    def _learn_metadata(self, server: FederatedServer, reports: Mapping[int, Report]) -> None:
        """Ask those again who say that their data have changed since, or were started anew."""
        names = [
            self._devices[device]
            for device, report in reports.items()
            if report.metadata != self._versions[self._devices[device]]
        ]
        if not names:
            return
        told = pull_metadata(self._transport, names, SHORT_S)
        found, refused = declared_anew(told, self._versions, len(self._about.classes))
        for name, why in refused.items():
            _log.warning("%s has changed, and what it has now is not known: %s", name, why)
        for name, declared in found.items():
            self._versions[name] = told.replies.steps[name]
            server.learn_metadata(server.table.changed(self._devices.index(name), declared))


def _losses(report: Report | None) -> tuple[float, float] | None:
    """None of a device whose network is in the sum, and who reports nothing."""
    return None if report is None else (report.generator_loss, report.discriminator_loss)
