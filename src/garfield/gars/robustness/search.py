"""The worst κ that a search finds: known lies on many kinds of rows, then rows moved freely.

A third of the budget goes to starts (see `starts`). The best of each dimension are then
changed at random, again and again, and a change is kept if κ grows: no row is fixed, neither
a liar's nor an honest one's, and whoever is worst off counts as honest. What is found is a
lower bound of the rule's κ, with the rows that show it. A rule that draws at random is
judged with one draw, which the search may exploit: as if liars had guessed it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from garfield.core.errors import AnswerNotFinite, BoundError, ConfigError, InputError
from garfield.core.types import Indices, Matrix
from garfield.gars.naming import parse
from garfield.gars.robustness.mutations import changed
from garfield.gars.robustness.starts import Start, attacked, two_points
from garfield.gars.robustness.subsets import FAR, ratio_of, worst_set
from garfield.gars.robustness.theory import Bound, least_kappa, proven_kappa
from garfield.gars.rule import Rule

BUDGET = 10_000
"""Calls of the rule, unless said otherwise: some five seconds at n = 17."""

_SHARE_OF_STARTS = 1 / 3
_TURN = 50  # changes of one dimension's rows before those of the next have their turn
_MOVED = ", then moved freely"


@dataclass(frozen=True, eq=False)
class Kappa:
    """What a search found about one rule."""

    rule: str
    n: int
    f: int
    found: float
    """The largest κ seen: the rule's own is no smaller. Infinite if it exceeded 1e6."""
    by: str
    """How it was found."""
    by_attack: float
    """The largest κ that a registered attack reached by itself, with the honest rows as S."""
    attack: str
    """That attack, and on which rows."""
    theory: Bound | None
    """An upper bound, if one is known."""
    least: float
    """What no rule can be below."""
    calls: int
    """Calls of the rule that were made."""
    rows: Matrix = field(repr=False)
    """(n, d) the rows that show it."""
    honest: tuple[int, ...] = ()
    """Which of them are the honest ones, then: S."""


def worst_kappa(
    rule: str | Rule,
    *,
    n: int,
    f: int,
    budget: int = BUDGET,
    seconds: float = math.inf,
    seed: int = 0,
    step: Callable[[int], object] = lambda calls: None,
    clock: Callable[[], float] = time.monotonic,
) -> Kappa:
    """Search for the largest κ of a rule for n rows with f faults.

    The same seed and budget find the same, unless `seconds` end the search before. `step` is
    called now and then with the calls of the rule so far.
    """
    rule = parse(rule) if isinstance(rule, str) else rule
    rule.check(n, f)
    if n <= 2 * f:
        raise BoundError(
            f"κ exists only where honest rows are the majority: n >= 2f + 1 = {2 * f + 1}, got "
            f"n={n}. Add rows or lower f to {(n - 1) // 2} or less."
        )
    if budget < 1 or not seconds > 0:
        raise ConfigError(
            f"A search needs a budget of at least 1 and some seconds, got {budget} and {seconds}."
        )
    search = _Search(rule, n, f, budget, step)
    ends = clock() + seconds
    rng = np.random.default_rng(seed)
    _judge_starts(search, rng, lambda: clock() >= ends)
    _climb(search, rng, lambda: clock() >= ends)
    best, attack = search.best, search.attack
    return Kappa(
        rule.name, n, f, best.kappa, best.by, attack.kappa, attack.by,
        proven_kappa(rule, n, f), least_kappa(n, f), search.calls, best.rows,
        tuple(best.honest.tolist()),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Found:
    """Rows and their κ."""

    kappa: float
    by: str
    rows: Matrix
    honest: Indices


class _Search:
    """Judges rows, counts what that costs, and keeps the worst."""

    def __init__(
        self, rule: Rule, n: int, f: int, budget: int, step: Callable[[int], object]
    ) -> None:
        self.rule, self.n, self.f, self.budget = rule.seeded(0), n, f, budget
        self.calls = 0
        self._step = step
        self._told = np.arange(n - f)  # the honest ones, as a start tells it
        self.best = self.attack = _Found(0.0, "nothing", np.zeros((n, 1)), self._told)
        self.tops: dict[int, _Found] = {}  # the worst rows of each dimension

    @property
    def spent(self) -> bool:
        return self.calls >= self.budget

    def answer(self, rows: Iterable[Matrix]) -> Matrix:
        """What the rule makes of the rows."""
        self.calls += 1
        if self.calls % 100 == 0:
            self._step(self.calls)
        return np.asarray(self.rule(rows, self.f), dtype=np.float64)

    def judge(self, start: Start) -> _Found | None:
        """κ of these rows for whoever is worst off; None where the rule refuses them."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                answer = self.answer(start.rows)
        except AnswerNotFinite:
            answer = np.full(np.shape(start.rows)[-1], np.nan)
        except InputError:
            return None
        by = start.name if start.attack is None else f"{start.attack} on {start.name}"
        if not np.abs(answer).max() < FAR:  # NaN compares false
            found = _Found(math.inf, by, start.rows, self._told)
        else:
            kappa, honest = worst_set(start.rows, answer, self.f)
            found = _Found(kappa, by, start.rows, honest)
        self._keep(found)
        if start.attack is not None:
            self._credit(found, answer)
        return found

    def _keep(self, found: _Found) -> None:
        if found.kappa > self.best.kappa:
            self.best = found
        d = found.rows.shape[1]
        if d not in self.tops or found.kappa > self.tops[d].kappa:
            self.tops[d] = found

    def _credit(self, found: _Found, answer: Matrix) -> None:
        """Note what an attack itself reached: those that it lied to are the honest ones."""
        beyond = not np.abs(answer).max() < FAR
        kappa = math.inf if beyond else ratio_of(found.rows, answer, self._told)
        if kappa > self.attack.kappa:
            self.attack = _Found(kappa, found.by, found.rows, self._told)


def _judge_starts(search: _Search, rng: np.random.Generator, late: Callable[[], bool]) -> None:
    for start in two_points(search.n, search.f):
        search.judge(start)
        if search.spent or late():
            return
    share = search.calls + int(_SHARE_OF_STARTS * (search.budget - search.calls))
    for start in attacked(search.n, search.f, rng, search.answer):
        search.judge(start)
        if search.calls >= share or late():
            return


def _climb(search: _Search, rng: np.random.Generator, late: Callable[[], bool]) -> None:
    """Change the worst rows of each dimension in turns, and from half-time on the worst of all."""
    half_time = (search.calls + search.budget) // 2
    while not (search.spent or late()):
        worst_first = sorted(search.tops, key=lambda d: -search.tops[d].kappa)
        for d in worst_first[:1] if search.calls >= half_time else worst_first:
            here = search.tops[d]
            for _ in range(_TURN):
                if search.spent or late() or here.kappa == math.inf:
                    return
                with np.errstate(over="ignore", invalid="ignore"):  # a liar's row may be huge
                    rows = changed(here.rows, here.honest, rng)
                by = here.by.removesuffix(_MOVED) + _MOVED
                here = _better(here, search.judge(Start(rows, by)))


def _better(here: _Found, there: _Found | None) -> _Found:
    return here if there is None or there.kappa < here.kappa else there
