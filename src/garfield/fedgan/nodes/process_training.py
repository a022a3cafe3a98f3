"""A federated GAN whose servers and devices are processes, over gRPC with TLS.

    servers ──commit──▶ state database ◀──follow── this process ──▶ run directory

The database holds all that was learned, and an event of every round, so it is what this process
follows: whichever server leads, and whoever was killed, metrics tell each committed round once.
Images are drawn and judged here, off the training path: of the newest state when it is time to.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from garfield.core.config import values_of
from garfield.core.errors import ConfigError, NodeFailed
from garfield.core.events import Event, Sink
from garfield.fedgan.assembling import federated_server
from garfield.fedgan.averaging import check_alike
from garfield.fedgan.cluster_features import features_for
from garfield.fedgan.clustering import PublishedClusters, cluster_names
from garfield.fedgan.differential_privacy import check_budgets
from garfield.fedgan.image_data import devices_of
from garfield.fedgan.metadata import DeviceMetadata, MetadataTable
from garfield.fedgan.nodes.committed import clusters_of
from garfield.fedgan.nodes.messages import About, AboutClusters
from garfield.fedgan.nodes.node_process import Wiring, run_device, run_server
from garfield.fedgan.nodes.secure_round import MOST as MOST_SECURE
from garfield.fedgan.sampling import round_size
from garfield.fedgan.saved_weights import Described, export
from garfield.fedgan.settings import MOST_PROCESSES, FedganSettings
from garfield.fedgan.simulation import Federation, declared
from garfield.fedgan.state import LearningState, StateDatabase, open_state_database
from garfield.fedgan.training import Evaluation, Training
from garfield.report.fedgan_summary import FedganHistory
from garfield.runs.process import preload_modules
from garfield.runs.run_directory import RunDirectory
from garfield.runs.scratch import scratch_directory
from garfield.runs.supervisor import Supervisor
from garfield.runs.user_files import loaded
from garfield.transport.addresses import check_address, is_loopback
from garfield.transport.certs import make

_START_S = 120.0
_TURN_S = 0.5
_END_S = 20.0  # more than `ServerLimits.linger_s`
_PATIENT = 2  # leases, for a server elsewhere to take over
_PRELOAD = ["garfield.fedgan.nodes.node_process"]


def check_processes(settings: FedganSettings) -> None:
    """Refuse what processes of this machine cannot do, before anything is written."""
    devices, given = settings.population.devices, settings.processes
    if given.listen is not None:
        check_address("--listen", given.listen)
        if given.certificates is None and not is_loopback(given.listen):
            raise ConfigError(
                f"At {given.listen} anybody could claim to be a device. Give --certificates DIR, "
                "made by garfield certs, or listen on 127.0.0.1."
            )
    if given.listen is not None and given.servers > 1:
        raise ConfigError(
            "Of servers on several machines each is started there: --servers 1 here, and "
            "garfield fedgan serve on the others."
        )
    if given.certificates is not None and given.listen is None:
        raise ConfigError(
            "Processes of this machine have certificates of their own. --certificates goes with "
            "--listen."
        )
    if devices > MOST_PROCESSES and given.listen is None:
        raise ConfigError(
            f"{devices} devices as processes take {0.445 * devices:.0f} GB of memory. Simulate "
            f"them in this process with --simulate, or take up to {MOST_PROCESSES}: --devices 8"
        )
    if given.listen is not None:
        _refuse_what_devices_elsewhere_decide(settings)
    size = round_size(settings.training.fraction, devices)
    if given.secure_aggregation and not 3 <= size <= MOST_SECURE:
        raise ConfigError(
            f"The sum of {size} devices a round is no secret, or is more than can be told: secure "
            f"aggregation takes 3 to {MOST_SECURE}. Set --fraction or --devices."
        )
    if settings.lies.lying:
        raise ConfigError(
            "Devices that lie by the book know what others send, as only simulated ones can. "
            "Add --simulate."
        )


def _refuse_what_devices_elsewhere_decide(settings: FedganSettings) -> None:
    """What this side cannot see to, its settings and summary must not promise."""
    noised = settings.population.noise_epsilon is not None
    if noised or settings.privacy.dp_epsilon is not None:
        flag = "--noise-epsilon" if noised else "--dp-epsilon"
        raise ConfigError(
            f"Devices that run elsewhere see to their privacy themselves: leave {flag} out here, "
            f"and give it to each of them: garfield fedgan device {flag} …"
        )
    if settings.population.weak_devices:
        raise ConfigError(
            "Devices that run elsewhere say how strong they are. Leave --weak-devices out here: "
            "garfield fedgan device --memory-mb … --compute …"
        )


class ProcessTraining(Training):
    """A training under way in other processes."""

    simulates = False

    def __init__(
        self, settings: FedganSettings, path: Path, evaluation: Evaluation | None = None
    ) -> None:
        check_processes(settings)
        super().__init__(settings, path, evaluation)
        if settings.privacy.dp_epsilon is not None:
            self._check_budgets()
        count, servers = settings.population.devices, settings.processes.servers
        self.devices = tuple(f"device-{k}" for k in range(count))
        self.servers = tuple(f"server-{k}" for k in range(servers))
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise ConfigError(f"{path} cannot be written to: {problem.strerror}.") from None
        self.where = settings.processes.state or str(path / "state.sqlite")
        self.run_name = path.resolve().name
        self.starts_devices = settings.processes.listen is None
        self.database: StateDatabase = open_state_database(self.where, self.run_name)
        self._open = ExitStack()
        self.supervisor: Supervisor | None = None
        self._started = False

    def _check_budgets(self) -> None:
        """Of the devices that are started here; each looks at its own again."""
        own = devices_of(self.dataset, self.settings)
        table = declared(own, len(self.dataset.classes), self.settings, frozenset())
        full = self.server.rules.load
        strength = zip(table.memory_mb, table.compute, strict=True)
        loads = [full.of(memory, compute) for memory, compute in strength]
        check_budgets(self.settings.privacy, loads, [len(data) for data in own])

    def run(self, tell: Sink, *, resumed: bool) -> None:
        """Start all processes, and follow what they commit until all rounds are over."""
        self._refuse_a_strangers_state(resumed)
        with self._open as stack:
            stack.callback(self.database.close)
            scratch = stack.enter_context(scratch_directory())
            preload = [*preload_modules(["torch"]), *_PRELOAD]
            supervisor = stack.enter_context(Supervisor(preload=preload))
            self.supervisor = supervisor
            self._start(supervisor, scratch)
            self._wait_for_devices(tell)
            super().run(tell, resumed=resumed)
            if not self.starts_devices:
                self._let_servers_end(supervisor)

    def _let_servers_end(self, supervisor: Supervisor) -> None:
        """They tell devices elsewhere that it is over, and wait a while for all to hear it."""
        deadline = time.monotonic() + _END_S
        while any(map(supervisor.is_running, self.servers)) and time.monotonic() < deadline:
            supervisor.events(_TURN_S)

    def _classes(self) -> tuple[tuple[str, ...], PublishedClusters | None]:
        """Names as they will be; which clusters these are is heard later."""
        given = self.settings.population
        self._clusters: AboutClusters | None = None
        if given.clusters is None:
            return self.dataset.classes, None
        extractor = features_for(self.settings.data, given.cluster_features)
        self._clusters = AboutClusters(extractor.key, given.tells_sums)
        return cluster_names(given.clusters), None

    def _federation(self) -> Federation:
        """The server as it will be; what devices have is heard later."""
        one_of_each = DeviceMetadata((1,) * len(self.classes))
        names = [f"device-{k}" for k in range(self.settings.population.devices)]
        table = MetadataTable.of([one_of_each] * len(names), names)
        server = federated_server(self.gan, table, self.settings)
        return Federation(self.gan, (), server, None)

    def _refuse_a_strangers_state(self, resumed: bool) -> None:
        if not resumed and self.database.leader() is not None:
            raise ConfigError(
                f"{self.where} holds a training named {self.run_name} already. Go on with it by "
                "--resume, or choose another --out."
            )

    def _start(self, supervisor: Supervisor, scratch: Path) -> None:
        given = self.settings.processes
        certificates = given.certificates
        if self.starts_devices:
            certificates = str(scratch / "certs")
            roles = dict.fromkeys(self.servers, "server") | dict.fromkeys(self.devices, "device")
            make(certificates, roles)
        sockets = str(scratch / "sockets") if self.starts_devices else None
        files = tuple(map(str, loaded()))
        wiring = Wiring(self.servers, self.devices, certificates, sockets, files)
        values, about = values_of(self.settings), self.about()
        listen = given.listen or "127.0.0.1:0"
        for name in self.servers:
            supervisor.start(
                name, run_server, values, about, wiring, self.where, self.run_name, listen
            )
        first = supervisor.started(_START_S)
        if self.starts_devices:
            servers_at = {name: str(first[name]["address"]) for name in self.servers}
            for number, name in enumerate(self.devices):
                supervisor.start(
                    name, run_device, values, about, wiring, servers_at, number,
                    str(self.path / "accounts"),
                )  # fmt: skip
        self._started = True

    def _wait_for_devices(self, tell: Sink) -> None:
        """Until all devices have said what they have, and the first state is committed."""
        while (kept := self.database.latest()) is None:
            self._hear(tell)
        declared = [
            DeviceMetadata.read(name, kept.devices[name], len(self.classes))
            for name in self.devices
        ]
        self.published = None if self._clusters is None else clusters_of(kept)
        self.server.learn_metadata(MetadataTable.of(declared, self.devices))

    def about(self) -> About:
        """What devices must know."""
        s = self.settings
        return About(
            s.gan, self.dataset.image, tuple(self.classes), s.conditional,
            s.training.optimizer_state, s.processes.secure_aggregation, self._clusters,
        )  # fmt: skip

    # -- following ------------------------------------------------------------------------

    def _hold(self, tell: Sink) -> None:
        """Wait until more rounds are committed, tell of all of them, and take over the state."""
        before = self.server.round
        while not self._tell_committed(tell):
            self._hear(tell)
        if self._is_time(self.settings.record.evaluate_every, before):
            self._take_over(tell)

    def _privacy(self) -> dict[str, Any]:
        """Devices keep their accounts themselves: what is spent is told with their rounds."""
        given = self.settings.privacy
        if given.dp_epsilon is None:
            return {}
        return {
            "epsilon_budget": given.dp_epsilon, "delta": given.dp_delta, "clip": given.dp_clip,
            "noise": given.dp_noise, "spent": [],
        }  # fmt: skip

    def _tell_committed(self, tell: Sink, up_to: int | None = None) -> bool:
        """Tell rounds that were committed since; whether there were any."""
        found = False
        for each in self.database.history(after=self.server.round):
            if each.choices is None or each.round != self.server.round + 1:
                continue  # told before: it had to be held again
            if up_to is not None and each.round > up_to:
                break
            tell(each.choices)
            self._note(each.choices)
            found = True
        return found

    def _note(self, event: Event) -> None:
        history = self.server.history
        history.record(event["asked"], event["took_part"], self.server.table.counts)
        history.seen[:] = event["seen"]
        history.leave(event.get("spent", ()))

    def _take_over(self, tell: Sink) -> None:
        """Have the newest state here, and all rounds up to it told."""
        kept = self._latest()
        self._tell_committed(tell, up_to=kept.round)
        self._have(kept)

    def _have(self, kept: LearningState) -> None:
        tensors = {name: t for name, t in kept.tensors.items() if name in self.server.state}
        check_alike(tensors, self.server.state, "The database")
        self.server.state = {name: tensors[name] for name in self.server.state}
        self._whole = (kept.round, self.server.state, None)

    def _latest(self) -> LearningState:
        kept = self.database.latest()
        assert kept is not None  # a round was committed
        return kept

    def _hear(self, tell: Sink) -> None:
        """What processes say; NodeFailed if nobody is left who could lead."""
        assert self.supervisor is not None
        for name, event in self.supervisor.events(_TURN_S):
            new = self.supervisor.failure(name) == event.get("error")
            if event["event"] == "failed" or (event["event"] == "ended" and new):
                lost = {"event": "lost", "node": name, "error": event["error"]}
                tell({**lost, "round": self.server.round})
        local = self._started and self.starts_devices
        if local and not any(map(self.supervisor.is_running, self.devices)):
            self._refuse_to_wait("No device is left", self.devices)
        if any(map(self.supervisor.is_running, self.servers)):
            return
        if any(True for _ in self.database.history(self.server.round)):
            return  # committed in the meantime
        if not self.starts_devices and self._another_may_lead():
            return
        self._refuse_to_wait("No server is left", self.servers)

    def _another_may_lead(self) -> bool:
        """Whether a server elsewhere leads, or has had no time yet to take over."""
        leader = self.database.leader()
        return leader is not None and leader.left_s > -_PATIENT * self.settings.processes.lease_s

    def _refuse_to_wait(self, what: str, names: Sequence[str]) -> None:
        assert self.supervisor is not None
        reasons = [self.supervisor.failure(name) for name in names]
        told = " ".join(dict.fromkeys(reason for reason in reasons if reason))
        raise NodeFailed(f"{what} after round {self.server.round}. {told}".rstrip())

    # -- keeping --------------------------------------------------------------------------

    def save(self) -> None:
        """Export the newest weights; the database is the checkpoint."""
        kept = self._latest()
        about = Described(
            self.settings.gan, self.dataset.image, self.classes, self.settings.conditional,
            kept.round,
        )  # fmt: skip
        state = {name: t for name, t in kept.tensors.items() if name in self.server.state}
        export(self.path / "weights", state, about)

    def restore(self, directory: RunDirectory) -> None:
        """Go on behind the rounds that the metrics tell of."""
        self._refuse_other_settings(directory)
        self.database.try_again()
        past = FedganHistory.of(directory.events())
        for event in past.rounds:
            self._note(event)
        self._evaluated = max((event["round"] for event in past.evaluations), default=-1)
        kept: Any = self.database.latest()
        if kept is not None:
            self._have(kept)
