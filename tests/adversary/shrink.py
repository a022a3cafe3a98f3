"""Shrinking: from a case that breaks an invariant to the smallest one found that still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from tests.adversary.case import Case, Move, Slow
from tests.adversary.invariants import broken


def invariant(sentence: str) -> str:
    """Which invariant a sentence of `broken` is about: its number."""
    return sentence.partition(" ")[0]


def breaks(case: Case, number: str) -> bool:
    """Whether that invariant does not hold in the case."""
    return any(invariant(sentence) == number for sentence in broken(case))


def shrunk(
    case: Case, still: Callable[[Case], bool], told: Callable[[Case], object] = lambda case: None
) -> Case:
    """The case with as much left out as can be, so that it is `still` as it was."""
    smaller = next((each for each in _smaller(case) if still(each)), None)
    while smaller is not None:
        case = smaller
        told(case)
        smaller = next((each for each in _smaller(case) if still(each)), None)
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Cases with one thing less, the largest things first."""
    if case.crash is not None:
        yield replace(case, crash=None)
    for i in range(len(case.moves)):
        yield replace(case, moves=_without(case.moves, i))
    for i in range(len(case.slow)):
        yield replace(case, slow=_without(case.slow, i))
    for steps in (2, case.steps // 2, case.steps - 1):
        if 1 <= steps < case.steps:
            yield replace(case, steps=steps)
    if case.contractions:
        yield replace(case, contractions=0)
    for i, move in enumerate(case.moves):
        for simpler in _simpler(move, Move("", "truth", "now"), skip=("liar",)):
            yield replace(case, moves=_with(case.moves, i, simpler))
    for i, slow in enumerate(case.slow):
        for simpler in _simpler(slow, Slow(0.0), skip=("delay_s",)):
            yield replace(case, slow=_with(case.slow, i, simpler))
    if case.crash is not None and case.crash.down_s:
        yield replace(case, crash=replace(case.crash, down_s=0.0))


def _simpler(each: Any, plain: Any, skip: tuple[str, ...]) -> Iterator[Any]:
    for of in fields(each):
        value = getattr(plain, of.name)
        if of.name not in skip and getattr(each, of.name) != value:
            yield replace(each, **{of.name: value})


def _without(every: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    return every[:place] + every[place + 1 :]


def _with(every: tuple[Any, ...], place: int, one: Any) -> tuple[Any, ...]:
    return (*every[:place], one, *every[place + 1 :])
