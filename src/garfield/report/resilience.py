"""How far does each rule land from the honest mean under each attack?

    error = |rule(honest rows and f lies) − honest mean| / |honest mean|

An error of 1 is what a server would make that did not move at all: whoever is
above it does harm. Several rounds are measured, and the middle one is kept.
Pure numbers: rounds of honest gradients in, a table of errors out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from garfield.attacks import Attack
from garfield.core.errors import BoundError, InputError
from garfield.core.types import Floats, Matrix
from garfield.gars import Rule

NOBODY = "nobody lies"
"""The column for comparison: the f suspects send what they honestly computed."""

GOOD, FAIR = 0.5, 1.0
"""Errors up to here are good, and fair."""

Grade: TypeAlias = Literal["good", "fair", "bad"]


@dataclass(frozen=True, eq=False)
class Round:
    """The gradients of n workers at one moment of training."""

    honest: Floats
    """(n − f, d)"""
    own: Floats
    """(f, d) what the attackers would send if they were honest."""
    poisoned: Mapping[str, Floats] = field(default_factory=dict)
    """(f, d) what they compute on falsified data, per attack that lies there."""

    @cached_property
    def mean_of_honest(self) -> Matrix:
        mean: Matrix = self.honest.mean(axis=0, dtype=np.float64)
        return mean

    @cached_property
    def mean_of_all(self) -> Matrix:
        h, f = len(self.honest), len(self.own)
        total: Matrix = h * self.mean_of_honest + self.own.sum(axis=0, dtype=np.float64)
        return total / (h + f)


@dataclass(frozen=True)
class Cell:
    """One rule under one attack."""

    rule: str
    attack: str
    error: float | None
    """NaN or infinity if that came out; None where n is too small for the rule."""
    note: str = ""
    """Why there is no error to show."""


@dataclass(frozen=True)
class Resilience:
    """All cells, rule by rule."""

    n: int
    f: int
    d: int
    rounds: int
    cells: tuple[Cell, ...]

    @property
    def rules(self) -> list[str]:
        return list(dict.fromkeys(cell.rule for cell in self.cells))

    @property
    def attacks(self) -> list[str]:
        return list(dict.fromkeys(cell.attack for cell in self.cells))

    def of(self, rule: str) -> dict[str, Cell]:
        """The cells of a rule, by attack."""
        return {cell.attack: cell for cell in self.cells if cell.rule == rule}


def grade(error: float) -> Grade:
    """Bad includes everything that is not a number."""
    if error < GOOD:
        return "good"
    return "fair" if error < FAIR else "bad"


def measure(
    rounds: Sequence[Round],
    rules: Mapping[str, Rule],
    attacks: Mapping[str, Attack],
    *,
    seed: int = 0,
    step: Callable[[], object] = lambda: None,
) -> Resilience:
    """Every rule under every attack, and with nobody lying; `step` is called after each cell.

    Rules and attacks go by the names they are given here, which become those of the table.
    """
    f, d = rounds[0].own.shape
    n = f + len(rounds[0].honest)
    cells = []
    for rule_name, rule in rules.items():
        for attack_name, attack in {NOBODY: None, **attacks}.items():
            error, note = _judge(rounds, rule, attack, seed)
            cells.append(Cell(rule_name, attack_name, error, note))
            step()
    return Resilience(n, f, d, len(rounds), tuple(cells))


def _judge(
    rounds: Sequence[Round], rule: Rule, attack: Attack | None, seed: int
) -> tuple[float | None, str]:
    """The error of the middle round, or why there is none."""
    f = len(rounds[0].own)
    try:
        rule.check(f + len(rounds[0].honest), f)
    except BoundError:
        return None, f"needs n ≥ {rule.needs(f)}"
    try:
        memory: dict[str, Any] = {}  # what the attackers learn in one round, they know in the next
        errors = [_error(now, rule, attack, seed + i, memory) for i, now in enumerate(rounds)]
    except InputError as refusal:  # the rule gives up: the round is lost
        return math.nan, str(refusal)
    worst_last = sorted(errors, key=lambda error: math.inf if math.isnan(error) else error)
    return worst_last[len(errors) // 2], ""


def _error(
    now: Round, rule: Rule, attack: Attack | None, seed: int, memory: dict[str, Any]
) -> float:
    """Relative error of the rule in one round, in float64."""
    rows = [*now.honest, *(now.own if attack is None else _lies(now, rule, attack, seed, memory))]
    mean = now.mean_of_all if attack is None else now.mean_of_honest
    with np.errstate(over="ignore", invalid="ignore"):
        answer = np.asarray(rule.seeded(seed)(rows, len(now.own)), dtype=np.float64)
        return _length(answer - mean) / _length(mean)


def _lies(
    now: Round, rule: Rule, attack: Attack, seed: int, memory: dict[str, Any]
) -> list[Floats | None]:
    f = len(now.own)
    # the attackers know the rule, but not what the server draws: another seed
    known = rule.seeded(seed + 1_000_003)
    return attack.rows(
        now.honest,
        f=f,
        rng=np.random.default_rng(seed),
        own=list(now.poisoned.get(attack.name, now.own)),
        defence=lambda rows: known(rows, f),
        memory=memory,
    )


def _length(vector: Matrix) -> float:
    """|vector| without BLAS, whose threads cost more than they bring at this size."""
    return float(np.sqrt(np.einsum("i,i->", vector, vector)))
