"""The world of a case: the real nodes, loops, rules and simulated network, and a tiny model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from zlib import crc32

import numpy as np
from greenlet import getcurrent, greenlet

from garfield.apps import APPLICATIONS, Run
from garfield.apps.aggregathor import AggregaThorSettings
from garfield.apps.decentralized import DecentralizedSettings
from garfield.apps.draco import DracoServer, DracoSettings, DracoWorker, code_of
from garfield.apps.groups import Learning
from garfield.apps.liubei import LiuBeiSettings, ScatteredWorker, Scattering
from garfield.coding.cyclic import fourier
from garfield.core.errors import GarfieldError
from garfield.gars import parse
from garfield.nodes.node import NodeArguments, Waits
from garfield.nodes.outbox import Outbox
from garfield.nodes.server import Server
from garfield.nodes.worker import Worker
from garfield.transport.contract import Key, Payload
from garfield.transport.simulated import Simulation
from tests.adversary.case import Case
from tests.adversary.liar import LyingOutbox
from tests.adversary.quadratic import RATE, Centres, Quadratic
from tests.adversary.record import Published, Record, RecordingOutbox, recorded
from tests.adversary.standstill import Progress, Standstill


class _Crashed(Exception):  # noqa: N818 (no error: the case says so)
    """The node dies now."""


class World:
    """All nodes of a case."""

    def __init__(self, case: Case) -> None:
        self.case, self.record = case, Record()
        self.simulation = Simulation(delay_s=self._delay_s)
        self._progress = Progress(case, lambda: self.simulation.now_s)
        self.servers: dict[str, Server] = {}
        self.workers: dict[str, Worker] = {}
        self.runs: dict[str, Run] = {}
        self._turns: dict[greenlet, str] = {}
        self._known: dict[tuple[str, int], dict[str, Payload]] = {}
        self._crashed: set[str] = set()
        self._saved: dict[str, Payload] = {}
        self._honest = frozenset(case.honest)
        self._mortal = tuple(name for name in case.servers if name in self._honest)
        self._unsettled = self._honest.intersection(case.servers)
        """Honest servers that are neither done nor have failed."""

    def run(self) -> Record:
        """Run until every honest server is done, or has failed, or nothing comes to an end."""
        case = self.case
        for name in case.servers:
            self.simulation.spawn(partial(self._program, name, self._serve))
        for name in case.workers:
            if name not in case.servers:
                self.simulation.spawn(partial(self._program, name, self._work))
        with (
            recorded(self.record, self._turn, self._progress.pull),
            np.errstate(over="ignore", invalid="ignore"),
        ):
            try:
                self.simulation.run(until=self._over_or_turns)
            except Standstill as seen:
                self.record.stands_still = str(seen)
        self.record.now_s = self.simulation.now_s
        return self.record

    # -- programs -------------------------------------------------------------------------------

    def _program(self, name: str, live: Callable[[str], None]) -> None:
        """A node's life, and its second one after a crash; what ends an honest one is noted."""
        self._turns[getcurrent()] = name
        while True:
            try:
                live(name)
            except _Crashed:
                self._node(name).close()
                assert self.case.crash is not None
                self._sleep(self.case.crash.down_s)
                continue
            except (GarfieldError, FloatingPointError) as failure:
                if name in self.case.honest:
                    self.record.failures[name] = failure
            break
        if name in self.case.honest and name in self.case.servers:
            self._unsettled -= {name}

    def _serve(self, name: str) -> None:
        case = self.case
        server = self.servers[name] = self._server(name)
        if name in self._saved:
            assert case.crash is not None
            server.model.write(self._saved[name])
            server.step, server.resumed = case.crash.saved_by(name), True
        numbers = case.numbers
        rules = parse(case.gar), parse(case.model_gar)
        run = Run(case.steps, numbers, *rules, self._own(), self._after_step, server)
        self.runs[name] = run
        APPLICATIONS[case.app].loop(server, run)
        if name in case.honest:
            self.record.finished[name] = self.simulation.now_s

    def _work(self, name: str) -> None:
        worker = self.workers[name] = self._worker(name)

        def over() -> bool:
            self._maybe_crash(name, worker.step)
            return self._over()

        worker.serve(over)

    def _after_step(self, server: Server, run: Run) -> None:
        if self.case.app == "draco" and run.explained and server.heard:
            lied = [server.heard.names[i] for i in run.explained.left_out or ()]
            self.record.blamed += [(server.step, name) for name in lied]
        self._maybe_crash(server.name, server.step)

    def _maybe_crash(self, name: str, step: int) -> None:
        crash = self.case.crash
        if crash is None or name in self._crashed or not crash.hits(name, self._mortal):
            return
        if name in self.servers and step == crash.saved_by(name):
            self._saved[name] = self.servers[name].read_model()
        if step >= crash.step:
            self._crashed.add(name)
            while crash.all_servers and not self._crashed.issuperset(self._mortal):
                self._sleep(0.01)  # they die together
            raise _Crashed

    def _sleep(self, seconds: float) -> None:
        self.simulation.sleep(seconds)

    def _over_or_turns(self) -> bool:
        self._progress.turn()
        return self._over()

    def _over(self) -> bool:
        return not self._unsettled

    def _turn(self) -> str | None:
        name = self._turns.get(getcurrent())
        return name if name in self._honest else None

    def _node(self, name: str) -> Server | Worker:
        return self.servers[name] if name in self.servers else self.workers[name]

    # -- nodes ----------------------------------------------------------------------------------

    def _server(self, name: str) -> Server:
        case, numbers = self.case, self.case.numbers
        transport, arguments = self.simulation.transport(name), self._arguments(name)
        model = Quadratic()
        worker = None
        if case.peers:
            worker = Worker(
                model, Centres(case.seed, name), transport=transport, servers=[name],
                **{**arguments, "serves": False},
            )  # fmt: skip
        made = DracoServer if case.app == "draco" else Server
        return made(
            model, transport=transport, workers=case.workers, servers=case.servers,
            f_w=numbers.f_w, f_ps=numbers.f_ps, gar=parse(self._gar()),
            model_gar=parse(case.model_gar), worker=worker, **arguments,
        )  # fmt: skip

    def _worker(self, name: str) -> Worker:
        case, numbers, model = self.case, self.case.numbers, Quadratic()
        given = {
            "transport": self.simulation.transport(name), "servers": case.servers,
            "f_ps": numbers.f_ps, "q_ps": numbers.q_ps, "model_gar": parse(case.model_gar),
            **self._arguments(name),
        }  # fmt: skip
        data = Centres(case.seed, name)
        if case.app == "draco":
            every = [Centres(case.seed, each) for each in case.workers]
            place = case.workers.index(name)
            return DracoWorker(
                model, every, place=place, code=code_of(self._own(), numbers), **given
            )
        if case.app == "liubei":
            learning = Learning(learning_rate=RATE, momentum=0.0)
            told = Scattering(case.gather_every, learning, case.seed, case.n_w, case.f_w)
            return ScatteredWorker(model, data, scattering=told, **given)
        return Worker(model, data, **given)

    def _arguments(self, name: str) -> NodeArguments:
        case = self.case
        return {
            "outbox": self._outbox(name), "waits": Waits(case.timeout_s, case.give_up_s),
            "clock": lambda: self.simulation.now_s,
            "rng": np.random.default_rng([case.seed, crc32(name.encode())]),
        }  # fmt: skip

    def _outbox(self, name: str) -> Outbox:
        case = self.case
        if name not in case.liars:
            return RecordingOutbox(name, self._note)
        return LyingOutbox(name, case.moves, self._known_of, case.timeout_s, self._share(name))

    def _share(self, name: str) -> complex:
        """This liar's of a codeword that vanishes for as many honest workers in time as it can."""
        case = self.case
        if case.app != "draco" or case.code != "cyclic":
            return 1.0
        late = {each for slow in case.slow if slow.delay_s > 1 for each in slow.senders}
        dimension = case.n_w - code_of(self._own(), case.numbers).r + 1
        held = [
            i for i, each in enumerate(case.workers) if each in case.honest and each not in late
        ]
        code = fourier(case.n_w)[:dimension]
        _, _, rows = np.linalg.svd(code[:, held[: dimension - 1]].T)
        return complex(rows[-1].conj() @ code[:, case.workers.index(name)])

    def _gar(self) -> str:
        return "average" if self.case.app == "draco" else self.case.gar

    def _own(self) -> object:
        case = self.case
        match case.app:
            case "draco":
                return DracoSettings(case.code, case.redundancy)
            case "liubei":
                return LiuBeiSettings(case.gather_every)
            case "decentralized":
                return DecentralizedSettings(case.contractions)
            case "aggregathor":
                return AggregaThorSettings()
        return None

    # -- what is known, and how long it takes ---------------------------------------------------

    def _note(self, name: str, key: Key, vector: Payload) -> None:
        self._known.setdefault((key.kind, key.step), {})[name] = vector
        self.record.published.append(Published(name, key, vector, self.simulation.now_s))

    def _known_of(self, kind: str, step: int) -> Sequence[Payload]:
        for at in range(step, max(-1, step - 3), -1):
            if (kind, at) in self._known:
                return list(self._known[kind, at].values())
        return ()

    def _delay_s(self, asker: str, sender: str, key: Key) -> float:
        if asker == sender or asker in self.case.liars or sender in self.case.liars:
            return 0.0
        step = self._node(sender).step if key.is_newest else key.step
        fitting = [s for s in self.case.slow if s.covers(asker, sender, key.kind, step)]
        if not fitting:
            return 0.0
        slow = fitting[-1]
        if not slow.hashed:
            return slow.delay_s
        text = f"{self.case.seed} {asker} {sender} {key.kind} {key.step} {key.round}"
        return slow.delay_s * (crc32(text.encode()) / 2**32)


def play(case: Case) -> tuple[World, Record]:
    """Run a case."""
    world = World(case)
    return world, world.run()
