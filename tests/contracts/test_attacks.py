"""One contract for every attack in the registry: a new lie is tested by registering it.

What can be checked without knowing what an attack sends is in `garfield.testing.attacks`, which
users hold their own attacks to; here it is run over ours.
"""

import numpy as np
import pytest

import garfield
from garfield import ATTACKS
from garfield.attacks import parse
from garfield.testing.attacks import ATTACK_CHECKS
from garfield.testing.promises import keep

HIDING = ("little-is-enough", "mimic", "min-max", "min-sum", "one-coordinate", "pull-apart")
"""Those that keep within the spread of the honest rows."""


def middle(rows):
    """A defence in three words of numpy, which takes any number of rows."""
    return np.median(np.stack(rows), axis=0)


def spread_out(h, d, seed=0, dtype=np.float32):
    return (1 + np.random.default_rng(seed).standard_normal((h, d))).astype(dtype)


def lies(name, honest, f=3, seed=5, **more):
    return parse(name).rows(honest, f=f, rng=np.random.default_rng(seed), defence=middle, **more)


@pytest.mark.parametrize("name", tuple(ATTACKS))
@pytest.mark.parametrize("check", ATTACK_CHECKS, ids=lambda check: check.__name__)
def test_every_attack_keeps_the_promise(check, name):
    keep(check, ATTACKS[name], name)


# -- what only some attacks do --------------------------------------------------------------------


@pytest.mark.parametrize("name", tuple(ATTACKS))
def test_only_who_is_meant_to_be_silent_sends_nothing(name):
    told = lies(name, spread_out(8, 3))
    assert [lie is None for lie in told] == [name == "drop"] * 3


@pytest.mark.parametrize("name", HIDING)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("row", [[0.0, 0.0, 0.0], [0.1, -2.0, 3.0]], ids=["zeros", "alike"])
def test_where_honest_rows_are_all_alike_there_is_no_spread_to_hide_in(name, dtype, row):
    np.testing.assert_allclose(lies(name, np.array([row] * 6, dtype))[0], row, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in ATTACKS if ATTACKS[name].knows == "all"])
@pytest.mark.parametrize("broken", [np.nan, np.inf, 1e300])
def test_an_honest_row_that_is_broken_teaches_nothing(name, broken):
    honest = spread_out(7, 5, dtype=np.float64)
    with_broken = np.insert(honest, 2, broken, axis=0)
    if not name.startswith("optimal"):  # those ask the defence, which sees the broken row too
        lie, expected = lies(name, with_broken, n=10)[0], lies(name, honest, n=10)[0]
        np.testing.assert_array_equal(lie, expected)
    with pytest.raises(garfield.InputError, match="None of the 7 honest rows is finite and within"):
        lies(name, np.full_like(honest, broken))


# -- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("reverse(facter=2)", "factor"),
        ("drop(shares=0.5)", "share"),
        ("mimic(victims=1)", "victim"),
    ],
)
def test_the_nearest_parameter_is_named(text, nearest):
    with pytest.raises(garfield.UnknownName, match=f"Did you mean {nearest}"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("reverse(factor='a lot')", "reverse.factor must be a number"),
        ("constant(value=None)", "constant.value must be a number"),
        ("random(scale=0)", "scale of noise must be positive"),
        ("gaussian(scale=-1)", "scale of noise must be positive"),
        ("drop(share=1.5)", r"drop.share must be within 0\.\.1, got 1.5"),
        ("little-is-enough(z=-1)", "z must be a number of at least 0"),
        ("little-is-enough(z='1')", "z must be a number or None"),
        ("little-is-enough(sign=2)", "sign must be 1 or -1"),
        ("optimal-little-is-enough(sign=0)", "sign must be 1 or -1"),
        ("optimal-little-is-enough(trials=2.5)", "trials must be a whole number"),
        ("optimal-little-is-enough(trials=7)", "at least 8 trials, got 7"),
        ("optimal-fall-of-empires(least=5, most=2)", "0 < least < most, got 5 and 2"),
        ("fall-of-empires(epsilon=0)", "epsilon must be positive"),
        ("mimic(victim=-1)", "victim must be the position of an honest row"),
        ("mimic(learn=0)", "learn must be at least 1 round"),
        ("takeover(value='a')", "value must be a number or None"),
        ("one-coordinate(sign=3)", "sign must be 1 or -1"),
        ("one-coordinate(coordinate=-1)", "coordinate must be at least 0"),
        ("pull-apart(edge='spreat')", "Did you mean spread"),
        ("pull-apart(reach=0)", "reach must be positive"),
        ("min-max(direction='sine')", "Did you mean sign"),
        ("reverse(-3)", r"Write it like reverse\(factor=-10\)"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused_before_anything_starts(text, complaint):
    with pytest.raises(garfield.ConfigError, match=complaint):
        parse(text)


def test_an_attack_is_found_by_text_with_its_parameters():
    assert parse("mimic") is not None
    assert parse(" reverse( factor = -1e+1 ) ").params == {"factor": -10.0}
    assert repr(parse("reverse(factor=-10)")) == "<attack reverse(factor=-10)>"
    with pytest.raises(garfield.UnknownName, match=r"mimik is not an attack\. Did you mean mimic"):
        parse("mimik")


def test_an_alias_is_the_same_attack():
    assert ATTACKS["inner-product-manipulation"] is ATTACKS["fall-of-empires"]
