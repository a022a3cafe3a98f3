"""A stage in one process, on a virtual clock: the same nodes, hundreds of faults a minute.

Every answer takes a while on its way, so that there is time for faults to strike in. A node that
is killed loses all but its checkpoints, and lives again from these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError, GarfieldError
from garfield.core.events import Event
from garfield.launch.adversary import Adversary
from garfield.launch.assemble import settled
from garfield.launch.drill import checks
from garfield.launch.drill.checks import Broken, Violation
from garfield.launch.drill.rehearsal import ENDLESS, STEPS_MORE
from garfield.launch.drill.schedule import LAUNCHER, Fault, FaultKind
from garfield.launch.drill.watch import GOES_ON, Watch
from garfield.launch.node_checkpoints import NodeCheckpoints, WorkerCheckpoints
from garfield.launch.simulate import SimulatedRun
from garfield.nodes.server import Server
from garfield.nodes.worker import Worker
from garfield.runs.process import use_threads
from garfield.transport.contract import Key, PullArguments, Replies, Transport, WrappedTransport
from garfield.transport.faults import ANYBODY, Faults, LinkFault
from garfield.transport.simulated import Simulation

if TYPE_CHECKING:
    from typing_extensions import Unpack

PATIENCE_S = 300.0
"""Of the virtual clock: how long all nodes may take to go on."""
_REAL_PATIENCE_S = 180.0
"""Of the real one, for a run whose virtual clock stands still."""
_ON_ITS_WAY_S = 0.05
_SLOW_S = 0.5
_TICK_S = 0.1
_ALWAYS = range(10**9)
_LINKS = {FaultKind.CUT: "drop", FaultKind.REFUSE: "refuse", FaultKind.SLOW: "delay"}


class SimulatedStage:
    """A simulated run. Use as a context."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self._settings, self._directory = settled(settings), directory
        self._honest = settings.honest_servers  # once: it is asked for at every turn
        self.watch = Watch({})
        self._run: _DrilledRun | None = None

    def __enter__(self) -> SimulatedStage:
        use_threads(1, self._settings.frameworks)
        return self

    def __exit__(self, *_: object) -> None:
        self._run = None

    def step(self) -> int:
        servers = self._now.servers
        return max((servers[name].step for name in self._honest if name in servers), default=0)

    # -- a drill --------------------------------------------------------------------------------

    def start(self) -> Sequence[Violation]:
        self._begin(ENDLESS, NodeCheckpoints(self._directory))
        return self._settle()

    def strike(self, fault: Fault) -> Sequence[Violation]:
        wanted = self.step() + fault.after_steps
        found = self._until(lambda: self.step() >= wanted, f"does not come to step {wanted}")
        if fault.node == LAUNCHER:
            found += self._end(saving=fault.kind is FaultKind.INTERRUPT)
            found += self._resume(ENDLESS)
        else:
            self._now.strike(fault)
            over_s = self._now.simulation.now_s + fault.lasts_s
            found += self._until(lambda: self._now.simulation.now_s >= over_s, "stands still")
            self._now.heal(fault)
        return [*found, *self._settle()]

    def finish(self) -> Sequence[Violation]:
        found = self._end(saving=True)
        last = max(self._saved(), self.step()) + STEPS_MORE
        found += self._resume(last)
        found += self._until(self._now.finished, f"does not come to step {last}")
        steps = {name: self._now.servers[name].step for name in self._honest}
        if set(steps.values()) != {last} and not found:
            found.append(Violation(Broken.EXIT_CODE, f"of {last} steps were done: {steps}"))
        found += self._failed()
        found += checks.checkpoints([self._directory])
        found += checks.half_written([self._directory])
        last_told = {n: a for n, a in self.watch.accuracy.items() if n in self._honest}
        return found + checks.models(last_told, self.watch.best)

    # -- whether all goes on --------------------------------------------------------------------

    @property
    def _now(self) -> _DrilledRun:
        assert self._run is not None  # start comes first
        return self._run

    def _begin(self, steps: int, checkpoints: NodeCheckpoints) -> None:
        settings = self._settings.updated(steps=steps)
        self._run = _DrilledRun(settings, lambda e: self.watch.take("", e), checkpoints)

    def _saved(self) -> int:
        return checks.resumable_step(self._settings, lambda name: self._directory)

    def _end(self, *, saving: bool) -> list[Violation]:
        if saving:
            self._now.save()
        return checks.checkpoints([self._directory])

    def _resume(self, steps: int) -> list[Violation]:
        """Go on with the run; one that has saved nothing yet begins anew."""
        expected, s = self._saved(), self._settings
        fresh = NodeCheckpoints(self._directory)
        if not expected:
            self._begin(steps, fresh)
            return []
        resumed = fresh.resumed(s.server_names, s.honest_servers)
        self._begin(steps, resumed)
        if resumed.start.step >= expected:
            return []
        what = f"the run went on from step {resumed.start.step}, and step {expected} was saved"
        return [Violation(Broken.CHECKPOINT, what)]

    def _settle(self) -> list[Violation]:
        """Let all nodes go on; who has ended by itself is noted, and was started again."""
        run = self._now
        before = {name: len(steps) for name, steps in run.steps.items()}
        found = self._until(lambda: not run.behind(before), "do not go on", run, before)
        return found + self._failed()

    def _failed(self) -> list[Violation]:
        run = self._now
        found = [Violation(Broken.EXIT_CODE, f"{name} ended: {why}") for name, why in run.failures]
        run.failures.clear()
        return found + checks.framed(run.accused(), self._settings.liars)

    def _until(
        self,
        condition: Callable[[], bool],
        what: str,
        run: _DrilledRun | None = None,
        before: dict[str, int] | None = None,
    ) -> list[Violation]:
        simulation = self._now.simulation
        deadline_s, real_s = simulation.now_s + PATIENCE_S, time.monotonic() + _REAL_PATIENCE_S

        def over() -> bool:
            late = simulation.now_s > deadline_s or time.monotonic() > real_s
            return late or condition()

        simulation.run(until=over)
        if condition():
            return []
        late = ", ".join(run.behind(before)) if run is not None and before is not None else "it"
        return [Violation(Broken.HANG, f"{late} {what} in {PATIENCE_S:.0f} s of the run's clock")]


class _DrilledRun(SimulatedRun):
    """All nodes of a simulated run, each of which may be ended and live again."""

    def __init__(
        self, settings: Settings, sink: Callable[[Event], None], checkpoints: NodeCheckpoints
    ) -> None:
        adversary = Adversary(settings)
        simulation = Simulation(
            delay_s=lambda asker, peer, key: _ON_ITS_WAY_S + adversary.delay_s(asker, peer, key)
        )
        self.links = _SwitchedFaults()
        self.steps: dict[str, list[int]] = {}
        """The steps that each node was seen at."""
        self.failures: list[tuple[str, str]] = []
        """Who has ended without our doing, and why."""
        self._down: set[str] = set()
        self._frozen: set[str] = set()
        self._nodes: dict[str, Server | Worker] = {}
        self._savers: dict[str, NodeCheckpoints | WorkerCheckpoints] = {}
        super().__init__(settings, sink, checkpoints, simulation)
        simulation.spawn(self._tick)

    def behind(self, before: dict[str, int]) -> list[str]:
        """Who has done too little since."""
        enough = {name: GOES_ON if name in self.servers else 1 for name in self.steps}
        return [
            name for name, told in self.steps.items()
            if len(told) - before.get(name, 0) < enough[name]
        ]  # fmt: skip

    def accused(self) -> dict[str, list[str]]:
        """By whom: of whom it has proof of a lie."""
        return {
            name: [
                f"{peer}: {reason.value}"
                for peer, reasons in node.account.faults.items()
                for reason in reasons
                if reason.proof
            ]
            for name, node in self._nodes.items()
        }

    def save(self) -> None:
        """Save every node, as when the run is interrupted."""
        for name in self._nodes:
            self._save(name)

    def strike(self, fault: Fault) -> None:
        node = fault.node
        if fault.kind in _LINKS:
            self.links.strike(node, _LINKS[fault.kind])
        elif fault.kind is FaultKind.FREEZE:
            self._frozen.add(node)
            self.links.strike(node, "drop")
        else:
            if fault.kind is FaultKind.RESTART:
                self._save(node)
            self._down.add(node)
            self.transports[node].close()

    def heal(self, fault: Fault) -> None:
        self.links.heal()
        self._frozen.discard(fault.node)
        self._down.discard(fault.node)

    # -- nodes ----------------------------------------------------------------------------------

    def _add_server(self, name: str) -> None:
        self.steps[name] = []
        self.simulation.spawn(lambda: self._live(name, self._serve))

    def _add_worker(self, name: str) -> None:
        self.steps[name] = []
        self.simulation.spawn(lambda: self._live(name, self._follow))

    def _live(self, name: str, live: Callable[[str, NodeCheckpoints], None]) -> None:
        """A node's life, and the next ones after it was ended."""
        checkpoints = self.checkpoints
        while True:
            try:
                live(name, checkpoints)
                return
            except GarfieldError as failure:
                if name not in self._down:
                    self.failures.append((name, str(failure)))
                self.transports[name].close()
            while name in self._down:
                self._sleep(_TICK_S)
            checkpoints = NodeCheckpoints(self.checkpoints.directory)
            if name in self.settings.server_names:
                with suppress(ConfigError):  # it was ended before it had saved anything
                    checkpoints = checkpoints.resumed([name], [name])

    def _serve(self, name: str, checkpoints: NodeCheckpoints) -> None:
        server = self._factory.server(name, self._transport(name))
        checkpoints.restore(server)
        self.servers[name] = self._nodes[name] = server
        self._savers[name] = checkpoints
        self._run_server(server, checkpoints)

    def _follow(self, name: str, checkpoints: NodeCheckpoints) -> None:
        worker, saved = self._worker(name, checkpoints)
        self._nodes[name], self._savers[name] = worker, saved

        def over() -> bool:
            saved.between_steps()
            return self.finished()

        worker.serve(over)

    def _save(self, name: str) -> None:
        node, saver = self._nodes.get(name), self._savers.get(name)
        if isinstance(node, Server) and isinstance(saver, NodeCheckpoints):
            saver.interrupted(node)
        elif isinstance(saver, WorkerCheckpoints):
            saver.interrupted()

    def _transport(self, name: str) -> Transport:
        return _Freezable(self.links.around(super()._transport(name)), lambda: self._thawed(name))

    def _thawed(self, name: str) -> None:
        while name in self._frozen:
            self._sleep(_TICK_S)

    def _tick(self) -> None:
        """Keep the clock going, also when all nodes wait for one another; note who goes on."""
        while True:
            self._sleep(_TICK_S)
            for name, node in self._nodes.items():
                if name not in self._down and self.steps[name][-1:] != [node.step]:
                    self.steps[name].append(node.step)

    def _sleep(self, seconds: float) -> None:
        self.simulation.sleep(seconds)


class _SwitchedFaults(Faults):
    """Faults of links that are there while a drill says so, whatever the step."""

    def __init__(self) -> None:
        super().__init__()
        self._now: tuple[LinkFault, ...] = ()

    def strike(self, node: str, kind: str) -> None:
        """Let that become of all that passes from and to a node."""
        delay_s = _SLOW_S if kind == "delay" else 0.0
        self._now = tuple(
            LinkFault(kind, asker, peer, _ALWAYS, delay_s)  # type: ignore[arg-type]
            for asker, peer in ((ANYBODY, node), (node, ANYBODY))
        )

    def heal(self) -> None:
        self._now = ()

    def between(self, asker: str, peer: str) -> LinkFault | None:
        return next((fault for fault in self._now if fault.strikes(asker, peer, 0)), None)


class _Freezable(WrappedTransport):
    """The transport of a node that stands still while it is frozen."""

    def __init__(self, inner: Transport, thawed: Callable[[], None]) -> None:
        super().__init__(inner)
        self._thawed = thawed

    def pull(self, peers: Sequence[str], key: Key, **how: Unpack[PullArguments]) -> Replies:
        self._thawed()
        replies = super().pull(peers, key, **how)
        self._thawed()
        return replies
