"""Servers that go on from a checkpoint take their workers back with them, and nobody else can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from garfield.nodes.standing import least, went_back_to
from tests.adversary.case import Case, Crash, Move, Slow
from tests.adversary.invariants import broken
from tests.adversary.world import play

TRUSTED = [
    Case("ssmw", "median", n_w=4, steps=9),
    Case("ssmw", "centered-clipping", n_w=5, steps=9),
    Case("aggregathor", "multi-krum", n_w=6, steps=9),
    Case("draco", "average", n_w=3, code="repetition", steps=9),
    Case("draco", "average", n_w=4, code="cyclic", steps=9),
]


def ids(case: Case) -> str:
    return f"{case.app}-{case.gar}-{case.code}"


@pytest.mark.parametrize("down_s", [0.0, 0.5, 20.0])
@pytest.mark.parametrize("case", TRUSTED, ids=ids)
def test_the_only_server_goes_on_from_its_checkpoint_and_the_run_ends(
    case: Case, down_s: float
) -> None:
    """It has saved step 4 and dies at 7: its workers wait for 7, and its liar lies all the same."""
    liar = case.liars[0]
    crash = Crash("server-0", 7, down_s, saved=4)
    case = replace(case, crash=crash, moves=(Move(liar, "reverse", "now"),))
    assert broken(case) == []
    world, record = play(case)
    assert record.finished
    assert not record.failures
    honest = [world.workers[name] for name in case.workers if name not in case.liars]
    assert all(back == (7, 4) for worker in honest for back in worker.went_back)
    assert any(worker.went_back for worker in honest)
    again = [each for each in record.published if each.key.kind == "model" and each.key.step == 5]
    assert len(again) == 2


@pytest.mark.parametrize("down_s", [18.0, 33.0])
def test_a_server_that_takes_long_to_start_again_takes_its_workers_back_before_it_gives_up(
    down_s: float,
) -> None:
    """Its workers look often enough, though each look sees only what the one before has asked."""
    case = Case("ssmw", "median", n_w=4, steps=9, crash=Crash("server-0", 7, down_s, saved=4))
    case = replace(case, slow=(Slow(0.3, senders=("server-0",)),))
    _, record = play(case)
    assert record.finished
    assert not record.failures


@pytest.mark.parametrize("case", TRUSTED, ids=ids)
def test_a_server_whose_answers_take_longer_than_a_time_out_takes_its_workers_back_too(
    case: Case,
) -> None:
    """The search found it: they were cut off at the time-out, and asked again in vain."""
    slow = (Slow(2.0 * case.timeout_s),)
    case = replace(case, slow=slow, crash=Crash("server-0", 7, 0.0, saved=4))
    _, record = play(case)
    assert record.finished
    assert not record.failures


def test_all_servers_go_on_from_their_checkpoints_and_the_run_ends() -> None:
    case = Case("msmw", "median", "trimmed-mean", n_w=4, n_ps=5, f_ps=1, steps=9)
    crash = Crash("server-0", 7, 0.5, saved=4, all_servers=True)
    case = replace(case, crash=crash, moves=(Move("server-4", "constant", "now"),))
    world, record = play(case)
    assert record.failures == {}
    assert set(record.finished) == {"server-0", "server-1", "server-2", "server-3"}
    honest = [world.workers[name] for name in case.workers if name not in case.liars]
    assert [worker.went_back for worker in honest] == [[(7, 4)]] * 3


def test_servers_that_stopped_a_step_apart_go_on_together() -> None:
    """A soak found it: one had got all proposals and forgot its own as it ended; one is silent."""
    case = Case("msmw", "median", "trimmed-mean", n_w=4, n_ps=4, f_ps=1, steps=9)
    crash = Crash("server-0", 8, 0.5, saved=6, all_servers=True, ahead=("server-2",))
    case = replace(case, crash=crash, moves=(Move("server-3", "truth", "never"),))
    assert broken(case) == []
    _, record = play(case)
    assert record.failures == {}
    assert set(record.finished) == {"server-0", "server-1", "server-2"}


@pytest.mark.parametrize("delays", [(0.3, 0.3), (0.3, 0.7), (0.9, 0.05)])
def test_servers_of_unlike_delays_take_their_workers_back_too(delays: tuple[float, float]) -> None:
    """What each of them answers comes between two looks, and not between the same two."""
    case = Case("msmw", "median", "trimmed-mean", n_w=4, n_ps=5, f_ps=1, steps=9, give_up_s=100.0)
    slow = (
        Slow(delays[0], senders=("server-0", "server-1"), askers=case.workers),
        Slow(delays[1], senders=("server-2", "server-3"), askers=case.workers),
    )
    crash = Crash("server-0", 7, 0.5, saved=4, all_servers=True)
    case = replace(case, crash=crash, slow=slow, moves=(Move("server-4", "truth", "never"),))
    world, record = play(case)
    assert record.failures == {}
    assert set(record.finished) == {"server-0", "server-1", "server-2", "server-3"}
    honest = [world.workers[name] for name in case.workers if name not in case.liars]
    assert [worker.went_back for worker in honest] == [[(7, 4)]] * 3


@pytest.mark.parametrize("claim", ["behind", "ahead"])
def test_one_restarted_server_and_all_liars_take_nobody_back(claim: str) -> None:
    """The restarted one is truly behind, and the liars say that they are as well."""
    for n_ps, f_ps in ((5, 1), (8, 2)):
        case = Case("msmw", "median", "trimmed-mean", n_w=5, n_ps=n_ps, f_ps=f_ps, steps=9)
        lies = tuple(Move(name, "truth", claim) for name in case.liars)
        case = replace(case, moves=lies, crash=Crash("server-0", 5, 3.0))
        assert broken(case) == []
        world, _ = play(case)
        assert not [name for name, worker in world.workers.items() if worker.went_back]


def test_only_so_many_that_no_quorum_goes_on_without_them_take_a_worker_back() -> None:
    def stands(*steps: int) -> dict[str, int]:
        return {f"server-{i}": step for i, step in enumerate(steps)}

    assert [least(n, f) for n, f in ((1, 0), (3, 0), (3, 1), (4, 1), (5, 1), (8, 2))] == [
        1, 2, 3, 3, 4, 6,
    ]  # fmt: skip
    assert went_back_to(stands(20), 31, n=1, f=0) == 20
    assert went_back_to(stands(30), 31, n=1, f=0) is None  # it waits for others' gradients
    assert went_back_to(stands(20, 20, 20), 31, n=5, f=1) is None
    assert went_back_to(stands(20, 20, 20, 30), 31, n=5, f=1) is None
    assert went_back_to(stands(20, 20, 20, 29), 31, n=5, f=1) is None  # proposals are under way
    assert went_back_to(stands(20, 20, 20, 20), 31, n=5, f=1) == 20
    assert went_back_to(stands(20, 0, 20, 18), 31, n=5, f=1) == 20  # liars cannot say how far
    assert went_back_to(stands(20, 28, 18, 18), 31, n=5, f=1) == 20
    assert went_back_to({}, 31, n=1, f=0) is None
