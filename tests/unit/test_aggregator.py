"""What an aggregator gives a rule besides the rows: its last answer, its node's row, a seed."""

import numpy as np
import pytest

from garfield import ConfigError, InputError, UnknownName, gar
from garfield.gars import GARS, init, parse
from tests import references

torch = pytest.importorskip("torch")


def rows(seed=0, n=9, d=20, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


# -- the last aggregate -----------------------------------------------------------------------


def test_centered_clipping_steps_from_the_last_aggregate():
    aggregator = init("centered-clipping(tau=0.5)", n=9, f=2)
    first = references.centered_clipping(rows(0).astype(np.float64), 2, tau=0.5)
    second = references.centered_clipping(rows(1).astype(np.float64), 2, first, tau=0.5)
    np.testing.assert_allclose(aggregator.aggregate(rows(0)), first, atol=1e-5)
    np.testing.assert_allclose(aggregator.aggregate(rows(1)), second, atol=1e-5)


def test_who_writes_to_an_answer_does_not_change_what_is_remembered():
    kept, written = (init("centered-clipping(tau=0.5)", n=9, f=2) for _ in range(2))
    kept.aggregate(rows(0))
    written.aggregate(rows(0))[:] = 1e6
    np.testing.assert_array_equal(written.aggregate(rows(1)), kept.aggregate(rows(1)))


def test_a_torch_answer_is_remembered_as_a_copy_too():
    kept, written = (init("centered-clipping(tau=0.5)", n=9, f=2) for _ in range(2))
    kept.aggregate(torch.from_numpy(rows(0)))
    written.aggregate(torch.from_numpy(rows(0))).fill_(1e6)
    again = torch.from_numpy(rows(1))
    assert torch.equal(written.aggregate(again), kept.aggregate(again))


def test_a_reference_given_is_taken_before_the_last_aggregate():
    aggregator = init("centered-clipping(tau=0.5)", n=9, f=2)
    aggregator.aggregate(rows(0) + 50)
    found = aggregator.aggregate(rows(1), reference=np.ones(20, np.float32))
    pure = GARS["centered-clipping"](rows(1), f=2, tau=0.5, reference=np.ones(20, np.float32))
    np.testing.assert_array_equal(found, pure)


def test_what_the_rule_was_set_up_with_stays_its_reference():
    ones = np.ones(20, np.float32)
    aggregator = init("centered-clipping", n=9, f=2, tau=0.5, reference=ones)
    pure = GARS["centered-clipping"](rows(1), f=2, tau=0.5, reference=ones)
    aggregator.aggregate(rows(0))
    np.testing.assert_array_equal(aggregator.aggregate(rows(1)), pure)


@pytest.mark.parametrize("name", ["centered-clipping", "nnm+centered-clipping"])
def test_forgetting_begins_again_from_the_median(name):
    aggregator = init(name, n=9, f=2)
    aggregator.aggregate(rows(0) + 50)
    aggregator.forget()
    np.testing.assert_array_equal(aggregator.aggregate(rows(1)), parse(name)(rows(1), f=2))


def test_a_last_aggregate_of_another_length_is_no_reference():
    aggregator = init("centered-clipping", n=9, f=2)
    aggregator.aggregate(rows(0, d=7))
    heard = [None, *rows(1)[1:]]
    pure = GARS["centered-clipping"](heard, f=2)
    np.testing.assert_array_equal(aggregator.aggregate(heard), pure)


@pytest.mark.parametrize("name", sorted(set(GARS) - {"centered-clipping", "dnc"}))
def test_other_rules_have_no_memory_and_no_row_of_their_own(name):
    n = max(9, GARS[name].needs(1))
    aggregator = init(name, n=n, f=1 if GARS[name].robust else 0)
    aggregator.aggregate(rows(0, n) + 50)
    own = None if name == "monna" else rows(5)[0]
    pure = GARS[name](rows(1, n), f=aggregator.f)
    np.testing.assert_array_equal(aggregator.aggregate(rows(1, n), own=own), pure)


def test_a_reference_for_a_rule_that_takes_none_is_refused():
    with pytest.raises(UnknownName, match="reference is not a parameter of median"):
        init("median", n=9, f=2).aggregate(rows(), reference=rows()[0])


def test_a_rule_that_remembers_must_take_a_reference():
    with pytest.raises(ConfigError, match="must take a `reference`"):

        @gar("forgetful", needs=lambda f: 1, remembers="own row")
        def forgetful(rows, *, f):
            return rows.median()


# -- the node's own row -----------------------------------------------------------------------

TWO_CAMPS = [np.full(4, v, np.float32) for v in (0.0, 1.0, 2.0, 100.0, 101.0, 102.0, 103.0)]
NAN = np.full(4, np.nan, np.float32)


@pytest.mark.parametrize("lost", [0, 3, 6])
@pytest.mark.parametrize("how", [None, NAN], ids=["missing", "not finite"])
def test_monna_trusts_the_nodes_own_row_whoever_is_set_aside(lost, how):
    heard = list(TWO_CAMPS)
    heard[lost] = how
    left = [row for i, row in enumerate(TWO_CAMPS) if i != lost]
    found = init("monna", n=7, f=3).aggregate(heard, own=TWO_CAMPS[1])
    nearest = sorted(left, key=lambda row: abs(row[0] - 1.0))[:4]
    np.testing.assert_allclose(found, np.mean(nearest, axis=0))


def test_monna_trusts_another_row_where_the_caller_says_so():
    aggregator = init("monna", n=7, f=3)
    found = aggregator.aggregate(TWO_CAMPS, own=TWO_CAMPS[0], reference=TWO_CAMPS[6])
    np.testing.assert_array_equal(found, np.full(4, 101.5))
    fixed = init("monna(reference=6)", n=7, f=3)
    np.testing.assert_array_equal(fixed.aggregate(TWO_CAMPS, own=TWO_CAMPS[0]), found)


def test_an_own_row_of_the_wrong_length_is_refused():
    with pytest.raises(InputError, match="length 3, but the rows have length 4"):
        init("monna", n=7, f=3).aggregate(TWO_CAMPS, own=np.zeros(3, np.float32))


# -- the round's seed -------------------------------------------------------------------------

DRAWING = ["bucketing+median", "dnc(sample=3)", "bucketing+dnc(sample=3)"]
every_drawing = pytest.mark.parametrize("name", DRAWING)


def answers(aggregator, count=12):
    return [aggregator.aggregate(rows(0, n=11)).tobytes() for _ in range(count)]


@every_drawing
def test_every_round_draws_anew_and_a_generator_fixes_how(name):
    def run(seed):
        return answers(init(name, n=11, f=1, rng=np.random.default_rng(seed)))

    assert run(3) == run(3) != run(4)
    assert len(set(run(3))) > 3


@every_drawing
def test_without_a_generator_the_system_draws(name):
    assert len(set(answers(init(name, n=11, f=1)))) > 3


@pytest.mark.parametrize(
    "name",
    [
        "bucketing(seed=5)+median",
        "dnc(sample=3, seed=5)",
        "bucketing(seed=5)+bucketing(s=1, seed=5)+median",
    ],
)
def test_a_seed_in_the_rules_text_fixes_the_run_and_not_the_round(name):
    once, again = (init(name, n=11, f=1, rng=np.random.default_rng(s)) for s in (1, 2))
    found = answers(once)
    assert found == answers(again)
    assert len(set(found)) > 3
    pure = parse(name)
    assert len({pure(rows(0, n=11), f=1).tobytes() for _ in range(5)}) == 1


def test_nothing_is_drawn_before_the_rows_are_in():
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state
    aggregator = init("bucketing+median", n=11, f=1, rng=rng)
    with pytest.raises(InputError, match="set up for n=11 rows, got 9"):
        aggregator.aggregate(rows(0, n=9))
    assert rng.bit_generator.state == before
    aggregator.aggregate(rows(0, n=11))
    assert rng.bit_generator.state != before


def test_a_rule_that_draws_nothing_leaves_the_generator_alone():
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state
    init("nnm+multi-krum", n=11, f=1, rng=rng).aggregate(rows(0, n=11))
    assert rng.bit_generator.state == before
