"""garfield.testing: a user's own extension passes, and a wrong one is told what it promised."""

import subprocess
import sys

import numpy as np
import pytest

from garfield import ATTACKS, GARS, attack, gar
from garfield.testing import check_attack, check_rule


@pytest.fixture
def register():
    """Registers a rule or an attack, for one test."""

    def rule(function, **says):
        says = {"needs": lambda f: 2 * f + 1, **says}
        return gar("mine", **says)(function)

    def lie(function, **says):
        return attack("mine", **{"knows": "own", **says})(function)

    yield {"rule": rule, "attack": lie}
    GARS.remove("mine")
    ATTACKS.remove("mine")


def test_a_rule_of_ones_own_can_be_held_to_it(register):
    check_rule(register["rule"](lambda rows, *, f: rows.median()))


def test_a_rule_that_draws_at_random_can_be_held_to_it():
    check_rule(GARS["dnc"])


@pytest.mark.parametrize(
    ("function", "says", "promise"),
    [
        (lambda rows, *, f: rows.matrix().mean(axis=0), {}, "f poisoned rows do not carry"),
        (lambda rows, *, f: rows.median(), {"translates": False}, "moves with the rows, if and"),
        (lambda rows, *, f: rows.median()[:1], {}, "takes as many rows as it needs"),
        (lambda rows, *, f: rows.median(), {"selects": True}, "says whom it trusted"),
        (lambda rows, *, f: rows.matrix()[0], {"robust": False}, "The order of rows does not"),
        (lambda rows, *, f: 1 / 0, {}, "It raised InputError: .* failed: ZeroDivisionError"),
    ],
)
def test_what_a_wrong_rule_breaks_is_said(register, function, says, promise):
    with pytest.raises(AssertionError, match=f"mine breaks a promise: .*{promise}"):
        check_rule(register["rule"](function, **says))


def test_an_attack_of_ones_own_can_be_held_to_it(register):
    check_attack(register["attack"](lambda view, *, factor=-3.0: factor * view.own))


@pytest.mark.parametrize(
    ("function", "says", "promise"),
    [
        (lambda view: view.own, {}, "What it sends is a lie"),
        (lambda view: -view.own, {"unanimous": True}, "does not depend on who tells it"),
        (lambda view: view.own[:1], {}, "shaped as an honest vector"),
        (lambda view: view.own + np.random.default_rng().random(), {}, "tell the same lie"),
        (lambda view: view.own * np.nan, {"unanimous": True}, "a lie is not finite"),
        (lambda view: -view.own, {"knows": "nothing"}, "It raised ConfigError: .*knows nothing"),
    ],
)
def test_what_a_wrong_attack_breaks_is_said(register, function, says, promise):
    with pytest.raises(AssertionError, match=f"mine breaks a promise: .*{promise}"):
        check_attack(register["attack"](function, **says))


def test_no_test_framework_is_needed():
    code = (
        "import sys, garfield.testing as t\n"
        "from garfield import GARS, ATTACKS\n"
        "t.check_rule(GARS['median']); t.check_attack(ATTACKS['reverse'])\n"
        "assert not {'pytest', 'hypothesis'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-O", "-c", code], check=True)
