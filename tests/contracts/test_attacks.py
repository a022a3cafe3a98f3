"""One contract for every attack in the registry: a new lie is tested by registering it."""

import numpy as np
import pytest

import garfield
from garfield import ATTACKS, View
from garfield.attacks import parse

every_attack = pytest.mark.parametrize("name", tuple(ATTACKS))
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])

SILENT = {"drop"}
every_voice = pytest.mark.parametrize("name", [name for name in ATTACKS if name not in SILENT])
every_finite_voice = pytest.mark.parametrize(
    "name", [name for name in ATTACKS if name not in SILENT and ATTACKS[name].finite]
)


def middle(rows):
    """A defence in three words of numpy, which takes any number of rows."""
    return np.median(np.stack(rows), axis=0)


def spread_out(h, d, seed=0, dtype=np.float32):
    return (1 + np.random.default_rng(seed).standard_normal((h, d))).astype(dtype)


def lies(name, honest, f=3, seed=5, **more):
    return parse(name).rows(honest, f=f, rng=np.random.default_rng(seed), defence=middle, **more)


def names(knows):
    return [name for name in ATTACKS if ATTACKS[name].knows == knows]


# -- what comes out -------------------------------------------------------------------------------


@every_voice
@every_dtype
@pytest.mark.parametrize("d", [1, 2, 37])
def test_there_are_f_lies_that_look_like_honest_vectors(name, dtype, d):
    told = lies(name, spread_out(8, d, dtype=dtype))
    assert [(lie.shape, lie.dtype) for lie in told] == [((d,), dtype)] * 3


@pytest.mark.parametrize("name", sorted(SILENT))
def test_only_who_is_meant_to_be_silent_sends_nothing(name):
    assert lies(name, spread_out(8, 3)) == [None] * 3


@every_attack
def test_the_same_seed_tells_the_same_lie(name):
    honest = spread_out(8, 40)
    for once, again in zip(lies(name, honest), lies(name, honest), strict=True):
        np.testing.assert_array_equal(once, again)


@every_attack
def test_what_it_looked_at_is_left_as_it_was(name):
    honest = spread_out(8, 40)
    own = spread_out(3, 40, seed=1)
    before = honest.copy(), own.copy()
    for lie in lies(name, honest, own=list(own)):
        if lie is not None:
            lie[:] = 7  # writing into a lie does not change the truth either
    np.testing.assert_array_equal(honest, before[0])
    np.testing.assert_array_equal(own, before[1])


@every_voice
def test_a_unanimous_lie_does_not_depend_on_who_tells_it(name):
    honest, own = spread_out(8, 40), spread_out(3, 40, seed=1)
    told = [
        ATTACKS[name](
            View(own=own[rank], honest=honest, n=11, f=3, rank=rank,
                 rng=np.random.default_rng(rank), defence=middle)
        )
        for rank in range(3)
    ]  # fmt: skip
    same = [np.array_equal(lie, told[0], equal_nan=True) for lie in told]
    assert all(same) == ATTACKS[name].unanimous


@every_voice
def test_what_it_sends_is_a_lie_unless_it_lies_in_the_data(name):
    honest = spread_out(8, 40)
    faithful = np.array_equal(lies(name, honest), honest[:3])
    assert faithful == (ATTACKS[name].kind == "data")


# -- what it may know -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", names("nothing"))
def test_who_knows_nothing_says_the_same_whatever_the_truth(name):
    first = lies(name, spread_out(8, 40, seed=1))
    other = lies(name, -50 * spread_out(8, 40, seed=2))
    for lie, same in zip(first, other, strict=True):
        np.testing.assert_array_equal(lie, same)


@pytest.mark.parametrize("name", names("own"))
def test_who_knows_only_its_own_vector_says_the_same_whatever_the_others_send(name):
    own = list(spread_out(3, 40, seed=3))
    first = lies(name, spread_out(8, 40, seed=1), own=own)
    other = lies(name, -50 * spread_out(8, 40, seed=2), own=own)
    for lie, same in zip(first, other, strict=True):
        np.testing.assert_array_equal(lie, same)


@pytest.mark.parametrize("name", names("all"))
def test_who_must_see_all_refuses_a_view_without_honest_rows(name):
    view = View(own=np.ones(4), n=5, f=1, rng=np.random.default_rng(0), defence=middle)
    with pytest.raises(garfield.ConfigError, match=r"must see the honest rows.*Pass honest="):
        ATTACKS[name](view)


# -- hard cases -----------------------------------------------------------------------------------


@every_finite_voice
@pytest.mark.parametrize(("h", "f"), [(1, 1), (1, 4), (2, 1), (3, 3), (2, 7), (9, 1)])
def test_any_number_of_honest_rows_and_attackers_will_do(name, h, f):
    honest = spread_out(h, 6)
    told = lies(name, honest, f=f)
    assert len(told) == f
    assert np.isfinite(told).all()


@every_attack
def test_nobody_lies_where_there_is_no_attacker(name):
    assert lies(name, spread_out(4, 3), f=0) == []


@every_finite_voice
@every_dtype
@pytest.mark.parametrize("row", [[0.0, 0.0, 0.0], [0.1, -2.0, 3.0]], ids=["zeros", "alike"])
def test_honest_rows_that_are_all_alike_do_not_confuse_it(name, dtype, row):
    honest = np.array([row] * 6, dtype)
    told = lies(name, honest)
    assert np.isfinite(told).all()
    if name in ("little-is-enough", "mimic", "min-max", "min-sum"):  # no spread to hide in
        np.testing.assert_allclose(told[0], row, rtol=1e-6)


@every_finite_voice
@every_dtype
@pytest.mark.parametrize("size", [3.4e38, 1e36, 1e-38])
def test_huge_and_tiny_rows_do_not_make_a_lie_infinite(name, dtype, size):
    honest = (np.sign(spread_out(6, 5)) * size).astype(dtype)
    assert np.isfinite(lies(name, honest)).all()


@pytest.mark.parametrize("name", names("all"))
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


@every_attack
def test_a_parameter_it_does_not_have_is_refused(name):
    with pytest.raises(garfield.UnknownName, match="strenght is not a parameter of"):
        ATTACKS[name].bind(strenght=2)


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
        ("little-is-enough(z='1')", "z must be a number of at least 0"),
        ("little-is-enough(sign=2)", "sign must be 1 or -1"),
        ("optimal-little-is-enough(sign=0)", "sign must be 1 or -1"),
        ("optimal-little-is-enough(trials=2.5)", "trials must be a whole number"),
        ("optimal-little-is-enough(trials=7)", "at least 8 trials, got 7"),
        ("optimal-fall-of-empires(least=5, most=2)", "0 < least < most, got 5 and 2"),
        ("fall-of-empires(epsilon=0)", "epsilon must be positive"),
        ("mimic(victim=-1)", "victim must be the position of an honest row"),
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
