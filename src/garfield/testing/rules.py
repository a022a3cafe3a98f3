"""What is promised of every aggregation rule, whatever it computes."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np

from garfield.attacks import ATTACKS
from garfield.core.errors import BoundError, ConfigError, InputError, UnknownName
from garfield.gars import Rule
from garfield.testing.promises import close, expect, keep_all, refused, spread_out

POISON = (np.nan, np.inf, -np.inf, 1e30, -1e30, 3e38, -3e38)
SEED = 7


def check_rule(rule: Rule) -> None:
    """Hold a rule to the contract; AssertionError names the promise that it breaks."""
    keep_all(RULE_CHECKS, rule.seeded(SEED), rule.name)


# -- bounds ---------------------------------------------------------------------------------------


def bound(rule: Rule) -> None:
    """It takes as many rows as it needs, and refuses one less with both numbers."""
    for f in (0, 1, 2, 5) if rule.robust else (0,):
        n = rule.needs(f)
        rows = spread_out(n, 3, seed=0)
        expect(rule(rows, f=f).shape == (3,), f"{n} rows of 3 numbers, f={f}: not 3 numbers.")
        if n > 1:
            with refused(BoundError, rf"n >= {n} .* f={f} .* n={n - 1}", f"n={n - 1}, f={f}"):
                rule(rows[:-1], f=f)


def largest_f(rule: Rule) -> None:
    """max_f(n) is the last f that n rows are enough for."""
    for n in (3, 7, 20, 31) if rule.robust else ():
        f = rule.max_f(n)
        if f >= 0:
            expect(rule.needs(f) <= n < rule.needs(f + 1), f"max_f({n}) is {f}.")
        else:
            expect(rule.needs(0) > n, f"max_f({n}) is {f}, and f=0 would do.")


def whole_f(rule: Rule) -> None:
    """An f that is no whole number of at least 0 is refused."""
    f: Any
    for f in (-1, 1.5, True, "2"):
        with refused(ConfigError, "f must be a whole number", f"f={f!r}"):
            rule(_rows(rule, 30, 2), f=f)


# -- symmetry -------------------------------------------------------------------------------------


def order_of_rows(rule: Rule) -> None:
    """The order of rows does not matter."""
    for n in (11, 15):
        rows = _rows(rule, n, 50, f=2, seed=2)
        shuffled = rows[np.random.default_rng(3).permutation(len(rows))]
        same = close(rule(shuffled, f=2), rule(rows, f=2), rows)
        expect(same, f"{len(rows)} rows give another result when they are shuffled.")


def translation(rule: Rule) -> None:
    """Its result moves with the rows, if and only if `translates` says so."""
    rows = _rows(rule, 15, 50, seed=4, dtype=np.float64)
    shift = np.linspace(-5, 5, 50)
    moved = close(rule(rows + shift, f=3), rule(rows, f=3) + shift, rows, 1e-9)
    does = "It moves with them" if moved else "It does not move with them"
    expect(moved == rule.translates, f"{does}: register it translates={moved}.")


def scaling(rule: Rule) -> None:
    """Its result scales with the rows, where `scales` says so, be they tiny or huge."""
    if not rule.scales:
        return
    rows = _rows(rule, 15, 50, seed=5, dtype=np.float64)
    for factor in (-3.0, 1e-12, 1e12):
        scaled = rule(rows * factor, f=3)
        same = close(scaled, rule(rows, f=3) * factor, rows * factor, 1e-9)
        expect(same, f"float64 rows times {factor:g} give another result.")
    rows = _rows(rule, 15, 30, seed=11)
    for factor in (1e-15, 1e15, 1e30):
        scaled = rule(rows * np.float32(factor), f=3).astype(np.float64) / factor
        expect(close(scaled, rule(rows, f=3), rows, 1e-4), f"float32 rows times {factor:g} fail.")


# -- faulty rows ----------------------------------------------------------------------------------


def poisoned_rows(rule: Rule) -> None:
    """f poisoned rows do not carry a robust rule away from the honest ones."""
    for poison in POISON if rule.robust else ():
        for everywhere in (True, False):
            rows = _rows(rule, 15, 60, seed=6)
            honest = rows[3:].copy()
            if everywhere:
                rows[:3] = poison
            rows[:3, 17] = poison
            _stays_near(rule(rows, f=3), honest, f"{poison:g} in 3 rows")


def many_poisons(rule: Rule) -> None:
    """Rows of different poison at once are survived, and those that are not finite set aside."""
    if not rule.robust:
        return
    rows = _rows(rule, 23, 60, f=5, seed=7)
    honest = rows[5:].copy()
    rows[:5] = np.array([np.nan, np.inf, 3e38, -3e38, 1e30])[:, None]
    explained = rule(rows, f=5, explain=True)
    _stays_near(explained.vector, honest, "five kinds of poison")
    expect(
        explained.set_aside == {0: "non-finite", 1: "non-finite"},
        f"Rows 0 and 1 are not finite, and set aside were {dict(explained.set_aside)}.",
    )


def overflowing_squares(rule: Rule) -> None:
    """float64 rows whose squares overflow are survived."""
    if not rule.robust:
        return
    rows = _rows(rule, 15, 20, seed=10, dtype=np.float64)
    honest = rows[3:].copy()
    rows[:3] = [[1e300], [-1e300], [1e308]]
    _stays_near(rule(rows, f=3), honest, "rows of 1e300")


def faults_left(rule: Rule) -> None:
    """Beside rows that are not finite, the rest is aggregated for the faults that are left."""
    if not rule.robust:
        return
    rows = _rows(rule, 15, 40, seed=8)
    rows[[2, 9]] = np.nan
    alone = rule(np.delete(rows, [2, 9], axis=0), f=1)
    expect(np.array_equal(rule(rows, f=3), alone), "2 of 15 rows are nan, and f=3 differs.")


def missing_row(rule: Rule) -> None:
    """A row that never came (None) lowers f only where the others are too few for it."""
    for n in (rule.needs(3), rule.needs(3) + 1) if rule.robust else ():
        rows = list(spread_out(n, 40, seed=9))
        told = min(3, rule.max_f(n - 1))
        alone = rule(rows[:4] + rows[5:], f=told)
        rows[4] = None
        explained = rule(rows, f=3, explain=True)
        same = np.array_equal(explained.vector, alone)
        expect(same, f"n={n}: it is not the result of the others at f={told}.")
        expect(explained.f == told, f"n={n}: told was f={explained.f}, not {told}.")
        expect(explained.set_aside == {4: "missing"}, f"set_aside is {dict(explained.set_aside)}.")


def missing_and_bad_rows(rule: Rule) -> None:
    """Beside a row that never came, one that is not finite lowers f by one, as it does alone."""
    for n in (rule.needs(3), rule.needs(3) + 1) if rule.robust else ():
        rows = list(spread_out(n, 40, seed=9))
        told = min(2, rule.max_f(n - 2))
        alone = rule(rows[:4] + rows[5:6] + rows[7:], f=told)
        rows[4], rows[6] = None, np.full(40, np.nan, np.float32)
        explained = rule(rows, f=3, explain=True)
        same = np.array_equal(explained.vector, alone)
        expect(same, f"n={n}: it is not the result of the others at f={told}.")
        expect(explained.f == told, f"n={n}: told was f={explained.f}, not {told}.")


def too_many_faulty(rule: Rule) -> None:
    """More faulty rows than f are refused, each named with what is wrong with it."""
    if not rule.robust:
        return
    rows = list(_rows(rule, 15, 10, f=1))
    rows[1], rows[4] = None, np.full(10, np.inf, np.float32)
    with refused(InputError, r"f=1 .* 1 \(missing\), 4 \(non-finite", "two bad rows at f=1"):
        rule(rows, f=1)


def colluding_attackers(rule: Rule) -> None:
    """f colluding attackers, whichever lie they tell, cannot move a robust rule far."""
    for name in ATTACKS if rule.robust else ():
        _withstand(rule, name)


# -- explaining -----------------------------------------------------------------------------------


def explanation(rule: Rule) -> None:
    """A rule that selects says whom it trusted, and no other claims to."""
    if not rule.selects:
        trusted = rule(_rows(rule, 5, 3, f=1), f=1, explain=True).trusted
        expect(trusted is None, f"It decides per coordinate, and trusted {trusted}.")
        return
    rows = _rows(rule, 15, 40, seed=13)
    n = len(rows)
    rows[5] = np.inf
    explained = rule(rows, f=3, explain=True)
    expect(np.array_equal(explained.vector, rule(rows, f=3)), "Explained, it decides otherwise.")
    trusted, left_out = explained.trusted or (), explained.left_out or ()
    expect(trusted, "It trusted nobody.")
    expect(sorted((*trusted, *left_out)) == list(range(n)), "Some rows are in neither list.")
    expect(5 in left_out, "Row 5 is infinite, and not left out.")


def weights(rule: Rule) -> None:
    """The weights by which it explains its result, if any, are shares of the trusted rows."""
    rows = _rows(rule, 15, 40, seed=13)
    explained = rule(rows, f=3, explain=True)
    if explained.weights is None:
        return
    if "reference" in signature(rule.function).parameters and explained.weights.sum() < 0.999:
        return  # the rest of the result is the reference's share
    mixed = explained.weights @ rows.astype(np.float64)
    expect(close(explained.vector, mixed, rows), "The rows, so weighted, are not the result.")
    shares = set(np.flatnonzero(explained.weights))
    expect(shares == set(explained.trusted or ()), "Not the trusted rows alone have a weight.")


# -- presence -------------------------------------------------------------------------------------


def presence_mask(rule: Rule) -> None:
    """A presence mask is honoured, or refused with the names of rules that take one."""
    rows = _rows(rule, 9, 300, f=2, seed=14)
    order = np.random.default_rng(15).random(rows.shape).argsort(axis=0)
    present = order < rule.needs(2)  # as many values of every coordinate as it needs
    if not rule.masks:
        with refused(ConfigError, r"no presence mask.*median", "A mask"):
            rule(rows, f=2, mask=present)
        return
    absent = np.where(present, rows, np.nan)
    once, again = rule(rows, f=2, mask=present), rule(absent, f=2, mask=present)
    expect(np.array_equal(once, again), "What lies where nothing arrived changes the result.")
    everything = rule(rows, f=2, mask=np.ones(rows.shape, bool))
    expect(close(everything, rule(rows, f=2), rows), "A mask that is all true changes the result.")


def too_few_present(rule: Rule) -> None:
    """A mask that leaves fewer values of a coordinate than f needs is refused with both numbers."""
    if not rule.masks:
        return
    needed = rule.needs(2)
    rows = _rows(rule, 9, 300, f=2, seed=14)
    present = np.ones(rows.shape, bool)
    present[needed - 1 :, 217] = False
    with refused(InputError, rf"{needed} values .* f=2 .* 217 only {needed - 1}", "Too few values"):
        rule(rows, f=2, mask=present)
    some = [row if i < needed else None for i, row in enumerate(rows)]
    lost = np.arange(len(rows))[:, None] < np.full(300, needed)
    told = rule(some, f=2, mask=lost, explain=True).f
    expect(told == 2, f"Rows that were lost on their way lower f to {told}.")


# -- hygiene --------------------------------------------------------------------------------------


def inputs_unchanged(rule: Rule) -> None:
    """The rows it is given are left as they were."""
    for poisoned in (False, True) if rule.robust else (False,):
        rows = _rows(rule, 15, 70_000, seed=17)
        if poisoned:
            rows[4], rows[8, 3] = 3e38, np.nan
        before = rows.copy()
        rule(rows, f=3)
        expect(np.array_equal(rows, before, equal_nan=True), f"Rows differ ({poisoned=}).")


def read_only_rows(rule: Rule) -> None:
    """Rows may be read-only; the result is the caller's to write to."""
    rows = _rows(rule, 15, 10)
    rows.setflags(write=False)
    expect(rule(rows, f=3).flags.writeable, "The result is read-only.")


def unknown_parameter(rule: Rule) -> None:
    """A parameter that it does not have is refused by name."""
    with refused(UnknownName, "zeal is not a parameter of", "zeal=3"):
        rule(_rows(rule, 30, 3), f=1, zeal=3)


RULE_CHECKS = (
    bound, largest_f, whole_f, order_of_rows, translation, scaling, poisoned_rows, many_poisons,
    overflowing_squares, faults_left, missing_row,
    missing_and_bad_rows, too_many_faulty, colluding_attackers,
    explanation, weights, presence_mask, too_few_present,
    inputs_unchanged, read_only_rows, unknown_parameter,
)  # fmt: skip
"""Each is a function of a rule whose randomness is fixed (`Rule.seeded`)."""


def _rows(rule: Rule, n: int, d: int, *, f: int = 3, seed: int = 0, dtype: Any = np.float32) -> Any:
    """(n, d), or as many rows as the rule needs for f if those are more."""
    return spread_out(max(n, rule.needs(f)), d, seed, dtype)


def _stays_near(result: Any, honest: Any, what: str) -> None:
    """Expect it within the box that holds the honest rows, or not far from it."""
    result, honest = np.asarray(result, np.float64), np.asarray(honest, np.float64)
    expect(np.isfinite(result).all(), f"With {what} the result is not finite.")
    moved = np.linalg.norm(result - honest.mean(axis=0))
    box = np.linalg.norm(honest.max(axis=0) - honest.min(axis=0))
    expect(moved <= box, f"With {what} it moves by {moved:g}; honest rows lie within {box:g}.")


def _withstand(rule: Rule, attack: str) -> None:
    """Expect it within three radii of the honest rows, when 4 attackers tell this lie."""
    f = 4
    n = max(19, rule.needs(f))
    rng = np.random.default_rng(12)
    honest = (5 + rng.standard_normal((n - f, 200))).astype(np.float32)
    lies = ATTACKS[attack].rows(
        honest, f=f, n=n, rng=rng, defence=lambda rows: np.asarray(rule(rows, f=f))
    )
    mean = honest.mean(axis=0)
    moved = np.linalg.norm(np.asarray(rule([*honest, *lies], f=f), np.float64) - mean)
    limit = 3 * np.linalg.norm(honest - mean, axis=1).max()
    if not rule.scales:
        limit += np.linalg.norm(mean)  # it may shorten honest rows too
    expect(moved <= limit, f"{attack} moves it by {moved:g}, more than {limit:g}.")
