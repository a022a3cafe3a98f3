"""What is promised of every attack, whatever lie it tells."""

from __future__ import annotations

from typing import Any

import numpy as np

from garfield.attacks import Attack, View
from garfield.core.errors import ConfigError, UnknownName
from garfield.testing.promises import expect, keep_all, refused, spread_out


def check_attack(attack: Attack) -> None:
    """Hold an attack to the contract; AssertionError names the promise that it breaks."""
    keep_all(ATTACK_CHECKS, attack, attack.name)


# -- what comes out -------------------------------------------------------------------------------


def shape_and_dtype(attack: Attack) -> None:
    """It tells f lies, each shaped as an honest vector and of its dtype, or silence."""
    for dtype in (np.float32, np.float64):
        for d in (1, 2, 37):
            told = _lies(attack, _honest(8, d, dtype=dtype))
            expect(len(told) == 3, f"3 attackers told {len(told)} lies.")
            for lie in _said(told):
                fits = lie.shape == (d,) and lie.dtype == dtype
                expect(fits, f"Among vectors of {d} × {np.dtype(dtype)}: {lie.shape} {lie.dtype}.")


def repeatable(attack: Attack) -> None:
    """The same view and generator make it tell the same lie."""
    honest = _honest(8, 40)
    expect(_equal(_lies(attack, honest), _lies(attack, honest)), "It told two different lies.")


def views_unchanged(attack: Attack) -> None:
    """What it looked at is left as it was, also when somebody writes into the lie."""
    honest, own = _honest(8, 40), _honest(3, 40, seed=1)
    before = honest.copy(), own.copy()
    for lie in _said(_lies(attack, honest, own=list(own))):
        lie[:] = 7
    expect(np.array_equal(honest, before[0]), "The honest rows have changed.")
    expect(np.array_equal(own, before[1]), "The attacker's own vectors have changed.")


def unanimity(attack: Attack) -> None:
    """Its lie does not depend on who tells it, if and only if `unanimous` says so."""
    honest, own = _honest(8, 40), _honest(3, 40, seed=1)
    told = [
        attack(
            View(own=own[rank], honest=honest, n=11, f=3, rank=rank,
                 rng=np.random.default_rng(rank), defence=_median)
        )
        for rank in range(3)
    ]  # fmt: skip
    if _said(told):
        same = _equal([told[0]] * 3, told)
        are = "Three lies are alike" if same else "Three lies are not alike"
        expect(same == attack.unanimous, f"{are}: register it with unanimous={same}.")


def faces(attack: Attack) -> None:
    """It tells the two halves of its askers different lies, if and only if `two_faced` says so."""
    honest = _honest(8, 40)
    told = [
        attack(
            View(own=honest[0], honest=honest, n=11, f=3, side=side,
                 rng=np.random.default_rng(0), defence=_median)
        )
        for side in (1, -1)
    ]  # fmt: skip
    differ = not _equal(told[:1], told[1:])
    tells = "It tells both one lie" if not differ else "It tells them different lies"
    expect(differ == attack.two_faced, f"{tells}: register it with two_faced={differ}.")


def a_lie(attack: Attack) -> None:
    """What it sends is a lie, unless it lies in the data it learns from."""
    honest = _honest(8, 40)
    told = _lies(attack, honest)
    if _said(told):
        faithful = _equal(told, list(honest[:3]))
        expect(faithful == (attack.kind == "data"), f"Of kind {attack.kind}, {faithful=}.")


# -- what it may know -----------------------------------------------------------------------------


def knowledge(attack: Attack) -> None:
    """It lies by what `knows` says that it sees, and by no more."""
    if attack.knows == "all":
        view = View(own=np.ones(4), n=5, f=1, rng=np.random.default_rng(0), defence=_median)
        with refused(ConfigError, r"must see the honest rows.*Pass honest=", "A view of nobody"):
            attack(view)
        return
    first, other = _honest(8, 40, seed=1), -50 * _honest(8, 40, seed=2)
    own = None if attack.knows == "nothing" else list(_honest(3, 40, seed=3))
    same = _equal(_lies(attack, first, own=own), _lies(attack, other, own=own))
    expect(same, f"knows={attack.knows!r}, and other rows make it tell another lie.")


def knowledge_of_the_rule(attack: Attack) -> None:
    """It tries out the rule only if `knows_rule` says that it knows it."""
    if not attack.knows_rule:
        honest = _honest(8, 40)
        blind = attack.rows(honest, f=3, rng=np.random.default_rng(5))
        same = _equal(blind, _lies(attack, honest))
        expect(same, "knows_rule=False, and with a rule to look at it tells another lie.")


# -- hard cases -----------------------------------------------------------------------------------


def any_numbers(attack: Attack) -> None:
    """Any number of honest rows and attackers will do, and nobody lies where there is none."""
    for h, f in ((1, 1), (1, 4), (2, 1), (3, 3), (2, 7), (9, 1)):
        told = _lies(attack, _honest(h, 6), f=f)
        expect(len(told) == f, f"{f} attackers beside {h} honest rows told {len(told)} lies.")
        _finite(attack, told, f"{h} honest rows, {f} attackers")
    expect(_lies(attack, _honest(4, 3), f=0) == [], "Without an attacker there is a lie.")


def rows_alike(attack: Attack) -> None:
    """Honest rows that are all alike, or zero, do not confuse it."""
    for dtype in (np.float32, np.float64):
        for row in ([0.0, 0.0, 0.0], [0.1, -2.0, 3.0]):
            _finite(attack, _lies(attack, np.array([row] * 6, dtype)), f"rows of {row}")


def extreme_rows(attack: Attack) -> None:
    """Huge and tiny rows do not make a finite lie infinite."""
    for dtype in (np.float32, np.float64):
        for size in (3.4e38, 1e36, 1e-38):
            honest = (np.sign(_honest(6, 5)) * size).astype(dtype)
            _finite(attack, _lies(attack, honest), f"rows of {size:g} as {np.dtype(dtype)}")


def unknown_parameter(attack: Attack) -> None:
    """A parameter that it does not have is refused by name."""
    with refused(UnknownName, "zeal is not a parameter of", "zeal=2"):
        attack.bind(zeal=2)


ATTACK_CHECKS = (
    shape_and_dtype, repeatable, views_unchanged, unanimity, faces, a_lie, knowledge,
    knowledge_of_the_rule, any_numbers, rows_alike, extreme_rows, unknown_parameter,
)  # fmt: skip


def _median(rows: Any) -> Any:
    """A defence that takes any number of rows."""
    return np.median(np.stack(rows), axis=0)


def _honest(h: int, d: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return (1 + spread_out(h, d, seed, np.float64)).astype(dtype)


def _lies(attack: Attack, honest: Any, f: int = 3, own: Any = None) -> list[Any]:
    return attack.rows(honest, f=f, rng=np.random.default_rng(5), own=own, defence=_median)


def _said(told: list[Any]) -> list[Any]:
    return [lie for lie in told if lie is not None]


def _equal(first: list[Any], second: list[Any]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(
        a is b or (a is not None and b is not None and np.array_equal(a, b, equal_nan=True))
        for a, b in pairs
    )


def _finite(attack: Attack, told: list[Any], what: str) -> None:
    fine = not attack.finite or all(np.isfinite(lie).all() for lie in _said(told))
    expect(fine, f"finite=True, and a lie is not finite: {what}.")
