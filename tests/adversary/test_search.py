"""A seeded portion of the search: every application and rule, at the smallest n it admits."""

from __future__ import annotations

import pytest

from garfield.nodes.server import Server
from garfield.transport.collector import ReplyCollector
from tests.adversary.case import Case, Move
from tests.adversary.draw import Cell, cells
from tests.adversary.invariants import broken
from tests.adversary.shrink import shrunk
from tests.adversary.test_found import FOUND
from tests.marks import heavy_but

SEEDS = [range(2), range(2, 4)]
LONG = ("msmw multi-krum median 6/1 4/1 async", 1)
"""Answers take 40 s, so its nine steps 6,200 s, in which workers look every half second: 60 s."""


@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.name.replace(" ", "-"))
@pytest.mark.parametrize("seeds", heavy_but(SEEDS, SEEDS[0]), ids=str)
def test_no_lie_and_no_timing_breaks_an_invariant(cell: Cell, seeds: range) -> None:
    for seed in seeds:
        if (cell.name, seed) != LONG:
            _bears(cell, seed)


@pytest.mark.heavy
def test_nor_where_every_answer_is_late() -> None:
    name, seed = LONG
    _bears(next(cell for cell in cells() if cell.name == name), seed)


def _bears(cell: Cell, seed: int) -> None:
    case = cell.draw(seed)
    found = broken(case)
    assert not found, f"{found[0]}\npython -m tests.adversary replay '{case.to_json()}'"


def test_a_case_is_the_same_after_a_journey_as_json() -> None:
    for cell in cells():
        case = cell.draw(5)
        assert Case.from_json(case.to_json()) == case


def test_a_case_is_played_alike_every_time() -> None:
    from tests.adversary.world import play

    case = next(cell for cell in cells() if cell.name.startswith("msmw median")).draw(3)
    (_, one), (_, other) = play(case), play(case)
    assert [(p.node, p.key, p.at_s, p.vector.tobytes()) for p in one.published] == [
        (p.node, p.key, p.at_s, p.vector.tobytes()) for p in other.published
    ]


def test_shrinking_leaves_what_matters_and_nothing_else() -> None:
    case = next(cell for cell in cells() if cell.case.app == "msmw").draw(3)
    assert len(case.moves) > 1
    wanted = case.moves[-1].liar
    smallest = shrunk(case, lambda each: any(move.liar == wanted for move in each.moves))
    (move,) = smallest.moves
    assert (move.liar, move.what, move.when, smallest.slow) == (wanted, "truth", "now", ())


def test_a_run_that_asks_for_ever_while_no_time_passes_is_told_and_does_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A laggard that believes to have caught up, and has not, asks for the same step again."""
    case = next(
        each for name, each in FOUND.items() if name.startswith("a laggard that jumps to the last")
    )
    monkeypatch.setattr(Server, "catch_up", lambda self, **given: False)
    assert [sentence[:29] for sentence in broken(case)] == ["5 live: it goes on for ever: "]


def test_a_run_whose_waits_are_too_short_to_matter_stands_still_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case("ssmw", "median", n_w=3, steps=2, moves=(Move("worker-2", "truth", "never"),))
    monkeypatch.setattr(ReplyCollector, "left_s", lambda self: 0.0)
    assert any("turns, and the time is still" in sentence for sentence in broken(case))
