"""What was once seen to break, as it was seen; its like at every smallest n is in test_search."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from garfield import GARS, Plan, QuorumError, Server, Worker
from garfield.apps import Run
from garfield.apps.msmw import msmw
from garfield.apps.run import Numbers
from garfield.apps.settings import Settings
from garfield.core.errors import BoundError, DecodingError
from garfield.launch.simulate import simulate
from garfield.nodes.byzantine import LyingOutbox, parse_plan
from garfield.nodes.node import Waits
from garfield.nodes.outbox import Outbox
from garfield.transport.connect import grpc_transport
from garfield.transport.identity import PeerAddress
from tests.adversary.case import Case, Move, Slow
from tests.adversary.invariants import broken
from tests.adversary.quadratic import Centres, Quadratic
from tests.adversary.world import play

# -- 1: silence is charged to honest nodes --------------------------------------------------------

SEEN_FIRST = Settings.of(
    simulate=True, app="msmw", model="digits_mlp", data="digits", workers=10, byzantine_workers=3,
    servers=3, byzantine_servers=1, steps=150, gar="multi-krum", worker_attack="drop",
    server_attack="constant(value=1000)", evaluate_every=0,
)  # fmt: skip


def test_workers_that_say_nothing_stop_a_run_that_needs_them_and_are_named() -> None:
    with pytest.raises(QuorumError, match=r"7 of 10 gradients .*worker-7: no answer.*worker-9"):
        simulate(SEEN_FIRST, lambda event: None)


@pytest.mark.heavy
def test_with_enough_nodes_it_learns_whatever_the_silent_and_the_lying_do() -> None:
    settings = SEEN_FIRST.updated(workers=12, servers=4, steps=120)
    servers = simulate(settings, lambda event: None)
    assert servers["server-0"].compute_accuracy() > 0.85


HELD_BACK = [
    Case("msmw", "trimmed-mean", "median", n_w=5, n_ps=3, f_ps=1),
    Case("msmw", "trimmed-mean", "median", n_w=5, n_ps=4, f_ps=1),
    Case("msmw", "multi-krum", "median", n_w=9, f_w=3, n_ps=4, f_ps=1),
    Case("msmw", "median", "median", n_w=7, f_w=3, n_ps=4, f_ps=1),
    Case("decentralized", "trimmed-mean", "trimmed-mean", n_w=7),
    Case("decentralized", "median", "median", n_w=3),
    Case("decentralized", "median", "median", n_w=4),
]


@pytest.mark.parametrize("case", HELD_BACK, ids=lambda c: f"{c.app}-{c.gar}-{c.n_w}-{c.n_ps}")
def test_liars_that_withhold_from_one_honest_node_move_nobody(case: Case) -> None:
    victim = case.servers[1]
    moves = [
        Move(liar, "constant", when, to)
        for liar in case.liars
        for when, to in (("now", ()), ("never", (victim,)))
    ]
    assert broken(replace(case, steps=8, moves=tuple(moves))) == []


@pytest.mark.parametrize(("gar", "n_w", "f_w"), [("multi-krum", 9, 3), ("trimmed-mean", 5, 1)])
def test_one_merely_silent_server_and_liars_that_are_first_move_nobody(
    gar: str, n_w: int, f_w: int
) -> None:
    moves = [Move(f"worker-{n_w - 1 - i}", "constant", "first") for i in range(f_w)]
    moves.append(Move("server-3", "truth", "never"))
    case = Case("msmw", gar, "median", n_w=n_w, f_w=f_w, n_ps=4, f_ps=1, moves=tuple(moves))
    assert broken(case) == []


class _Grpc:
    """Nodes in one process that reach each other by gRPC, each in a thread of its own."""

    def __init__(self, servers: int, plan: str) -> None:
        self.workers = tuple(f"worker-{i}" for i in range(5))
        self.servers = tuple(f"server-{i}" for i in range(servers))
        self.liars = {self.workers[-1], self.servers[-1]} if plan else set()
        self.waits, self.over, self.book = Waits(2.0, 200.0), threading.Event(), {}
        self.plan = plan
        made = {name: self._node(name) for name in (*self.servers, *self.workers)}
        for name, node in made.items():
            self.book[name] = PeerAddress(node.transport.address, "node")
        self.nodes = made
        self.failures: list[str] = []

    def _node(self, name: str) -> Server | Worker:
        transport = grpc_transport(name, self.book, listen="127.0.0.1:0")
        lying = name in self.liars
        outbox = LyingOutbox(parse_plan(self.plan, Plan(n=5, f=1)), name) if lying else Outbox()
        rule = GARS["median"]
        if name in self.workers:
            return Worker(
                Quadratic(), Centres(0, name), transport=transport, servers=self.servers, f_ps=1,
                model_gar=rule, waits=self.waits, outbox=outbox,
            )  # fmt: skip
        return Server(
            Quadratic(), transport=transport, workers=self.workers, servers=self.servers, f_w=1,
            f_ps=1, gar=GARS["trimmed-mean"], model_gar=rule, waits=self.waits, outbox=outbox,
        )  # fmt: skip

    def train(self, steps: int) -> dict[str, np.ndarray]:
        """The models of honest servers at the end."""
        numbers = Numbers(5, 1, len(self.servers), 1)
        rules = GARS["trimmed-mean"], GARS["median"]
        threads = [
            threading.Thread(target=self._quietly, args=(node.serve, self.over.is_set))
            for node in self.nodes.values()
            if isinstance(node, Worker)
        ]
        leading = [
            threading.Thread(
                target=self._quietly, args=(msmw, node, Run(steps, numbers, *rules, server=node))
            )
            for node in self.nodes.values()
            if isinstance(node, Server)
        ]
        for thread in (*threads, *leading):
            thread.start()
        for thread in leading:
            thread.join()
        self.over.set()
        honest = [name for name in self.servers if name not in self.liars]
        found = {name: self.nodes[name].read_model() for name in honest}
        reached = {name: self.nodes[name].step for name in honest}
        for node in self.nodes.values():
            node.close()
        for thread in threads:
            thread.join()
        assert reached == dict.fromkeys(honest, steps), self.failures
        return found

    def _quietly(self, program, *arguments) -> None:
        try:
            program(*arguments)
        except Exception as why:  # a node that is closed, or gives up: its step tells
            self.failures.append(f"{type(why).__name__}: {why}")


@pytest.mark.heavy
def test_over_grpc_liars_that_withhold_from_one_server_leave_models_where_they_were() -> None:
    undisturbed = _Grpc(5, "").train(8)
    attacked = _Grpc(5, "constant(value=1000), withhold(from=server-1)").train(8)
    largest = max(np.abs(model).max() for model in undisturbed.values())
    assert max(np.abs(model).max() for model in attacked.values()) < largest + 1.0


# -- 2: catching up takes over a liar's model -----------------------------------------------------


@pytest.mark.parametrize("n_ps", [4, 5])
@pytest.mark.parametrize("lie", ["constant", "stale", "apart"])
@pytest.mark.parametrize("claim", ["now", "ahead", "behind"])
def test_a_server_that_was_slow_for_nine_steps_catches_up_with_honest_models(
    n_ps: int, lie: str, claim: str
) -> None:
    case = Case(
        "msmw", "median", "median", n_w=4, n_ps=n_ps, f_ps=1, asynchronous=True, steps=14,
        give_up_s=100.0, moves=(Move(f"server-{n_ps - 1}", lie, claim),),
        slow=(Slow(0.01, hashed=True), Slow(0.2, askers=("server-0",), until=9)),
    )  # fmt: skip
    assert broken(case) == []


# -- 3: patience excludes an honest worker for ever -----------------------------------------------


@pytest.mark.parametrize("n_w", [3, 4])
def test_a_worker_that_missed_two_rounds_is_heard_again_and_f_stays(n_w: int) -> None:
    slow = (
        Slow(0.2, kinds=("gradient",)),
        Slow(0.5, senders=("worker-0",), kinds=("gradient",)),
        Slow(1.5, senders=("worker-0",), kinds=("gradient",), since=1, until=3),
    )
    liar = Move(f"worker-{n_w - 1}", "constant", "now")
    case = Case("ssmw", "trimmed-mean", n_w=n_w, steps=16, slow=slow, moves=(liar,))
    assert broken(case) == []
    _, record = play(case)
    later = [join for join in record.joins if join.key.step >= 8]
    assert {join.told for join in later} == {1}
    heard = any("worker-0" in join.names for join in later)
    assert heard or n_w > 3  # where three are enough, nobody waits for one that has used up T


# -- 10: parts drift and halves split -------------------------------------------------------------


def test_a_quorum_of_five_of_twelve_is_refused() -> None:
    settings = Settings.of(
        app="guanyu", workers=12, servers=12, byzantine_workers=1, byzantine_servers=1,
        worker_attack="reverse", server_attack="reverse", model_quorum=5,
    )  # fmt: skip
    with pytest.raises(BoundError, match="apart for ever"):
        settings.check()


@pytest.mark.parametrize(("asynchronous", "n_ps"), [(False, 4), (True, 6)])
def test_servers_that_equivocate_cannot_drive_honest_ones_apart(
    asynchronous: bool, n_ps: int
) -> None:
    case = Case(
        "msmw", "median", "trimmed-mean", n_w=4, n_ps=n_ps, f_ps=1, asynchronous=asynchronous,
        steps=40, give_up_s=100.0, moves=(Move(f"server-{n_ps - 1}", "apart", "now"),),
    )  # fmt: skip
    assert broken(case) == []


# -- 11: DRACO believes too much, LiuBei asks the liar alone --------------------------------------


@pytest.mark.parametrize("lie", ["fit", "constant", "reverse", "one"])
@pytest.mark.parametrize("late", [("worker-0", "worker-1"), ("worker-1", "worker-3")])
def test_two_honest_late_and_two_liars_are_refused_or_decoded_and_nobody_honest_is_blamed(
    lie: str, late: tuple[str, ...]
) -> None:
    case = Case(
        "draco", "average", n_w=7, f_w=2, code="cyclic", steps=3,
        slow=(Slow(2.0, senders=late, kinds=("coded",)),),
        moves=tuple(Move(liar, lie, "now") for liar in ("worker-5", "worker-6")),
    )  # fmt: skip
    assert broken(case) == []
    _, record = play(case)
    assert isinstance(record.failures["server-0"], DecodingError)


@pytest.mark.parametrize("lie", ["constant", "little", "apart", "stale"])
def test_late_honest_servers_do_not_leave_liubei_alone_with_the_liar(lie: str) -> None:
    honest = ("server-0", "server-1", "server-2")
    case = Case(
        "liubei", "median", "median", n_w=4, n_ps=4, f_ps=1, steps=24, gather_every=4,
        slow=(Slow(0.9, senders=honest, kinds=("model",), until=9),),
        moves=(Move("server-3", lie, "now"),),
    )  # fmt: skip
    assert broken(case) == []
    world, _ = play(case)
    for name in case.workers:
        asked = world.workers[name].tested
        assert name in case.liars or sum(asked[each] for each in honest) >= asked["server-3"]
