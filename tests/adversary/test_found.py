"""Breaks that the search has found, each as small as it could be made: they stay repaired."""

from __future__ import annotations

import pytest

from tests.adversary.case import Case, Crash, Move, Slow
from tests.adversary.invariants import broken

LATE = ("server-0", "server-1")
TWO_LIARS = {"n_w": 7, "f_w": 2, "n_ps": 8, "f_ps": 2, "asynchronous": True, "give_up_s": 1000.0}

FOUND = {
    "a laggard that jumps to the last model takes no step from it": Case(
        "msmw", "median", "median", **TWO_LIARS, steps=3,
        slow=(Slow(30.0, askers=("server-0",), since=1),),
    ),
    "a server that starts anew while the others are at the end ends, too": Case(
        "msmw", "multi-krum", "trimmed-mean", n_w=6, n_ps=5, f_ps=1, asynchronous=True, steps=2,
        give_up_s=1000.0, crash=Crash("server-3", 1, 3.0),
    ),
    "a jump takes no stale model for a new one": Case(
        "msmw", "median", "median", **TWO_LIARS, steps=14,
        slow=(
            Slow(0.01, hashed=True),
            Slow(3.0, askers=("server-0",), kinds=("proposal",), since=1, until=2),
            Slow(30.0, askers=("server-1",), since=3, until=5),
            Slow(2.0, senders=("server-2", "server-3"), askers=("server-0",), kinds=("model",)),
        ),
        moves=tuple(
            Move(liar, "stale", "now", to=LATE, kinds=("model",))
            for liar in ("server-6", "server-7")
        ),
    ),
    "exactly f who are past a step keep nobody waiting for a silent liar for ever": Case(
        "decentralized", "median", "trimmed-mean", n_w=8, f_w=2, steps=2, seed=301,
        moves=(
            Move("node-6", "truth", "never", kinds=("proposal", "model")),
            Move("node-7", "truth", "late", to=("node-1",)),
        ),
    ),
    "nor does one, where the other fault is proven": Case(
        "msmw", "multi-krum", "median", n_w=6, n_ps=5, f_ps=1, asynchronous=True, steps=2, seed=307,
        give_up_s=1000.0, crash=Crash("worker-0", 1, 0.3),
        moves=(Move("worker-5", "nan", "now", to=("server-2",)),),
    ),
    "patience ends with a liar whose answers are invalid, and come just in time": Case(
        "msmw", "multi-krum", "trimmed-mean", n_w=9, f_w=2, n_ps=8, f_ps=2, steps=2,
        moves=(Move("server-6", "truth", "late"), Move("server-7", "short", "inside")),
    ),
    "an answer that comes late, while its sender is charged, stops no round": Case(
        "draco", "average", n_w=5, f_w=2, steps=3,
        slow=(Slow(2.0, since=1), Slow(2.0, senders=("server-0", "worker-0"))),
    ),
    "a worker that is always a little later than the others is heard again after a pause": Case(
        "ssmw", "multi-krum", n_w=5, steps=12,
        slow=(
            Slow(0.4, kinds=("gradient",)),
            Slow(0.5, senders=("worker-1",), kinds=("gradient",)),
            Slow(1.5, senders=("worker-1",), kinds=("gradient",), until=2),
        ),
    ),
    "who has jumped over a proposal says so, and nobody waits for it": Case(
        "msmw", "trimmed-mean", "trimmed-mean", n_w=4, n_ps=5, f_ps=1, steps=4, seed=51044,
        moves=(
            Move("server-4", "short", "now", to=("server-0", "worker-0", "worker-2"), every=2),
        ),
        slow=(Slow(0.9, askers=("server-1",)),),
    ),
    "one server that has models of steps to come pushes no worker of liubei forward": Case(
        "liubei", "mda", "median", n_w=4, n_ps=5, f_ps=1, steps=7, seed=61002, gather_every=6,
        moves=(Move("server-4", "truth", "ahead"),), slow=(Slow(0.9, kinds=("model",)),),
    ),
    "a model that comes while a worker asks whether its server has gone back is not lost": Case(
        "ssmw", "monna", n_w=3, steps=5, seed=19,
        slow=(Slow(0.9, senders=("server-0",), since=4), Slow(0.2, askers=("worker-0",))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_it_stays_repaired(name: str) -> None:
    assert broken(FOUND[name]) == []
