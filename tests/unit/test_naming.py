"""Rules by name, by composition and by decorator, and the words of the errors."""

import numpy as np
import pytest

import garfield
from garfield import GARS, chain, gar, init
from garfield.gars import parse
from garfield.preaggregation import STAGES, Stage, bucketing, nnm

ROWS = np.random.default_rng(0).standard_normal((17, 30)).astype(np.float32)


def test_three_ways_to_call_are_one():
    expected = garfield.gars.multi_krum(ROWS, f=3)
    np.testing.assert_array_equal(init("multi-krum", n=17, f=3).aggregate(ROWS), expected)
    np.testing.assert_array_equal(garfield.GARs["multi-krum"](gradients=ROWS, f=3), expected)


def test_a_parameter_may_be_set_at_every_door():
    expected = GARS["multi-krum"](ROWS, f=3, m=2)
    np.testing.assert_array_equal(init("multi-krum", n=17, f=3, m=2).aggregate(ROWS), expected)
    np.testing.assert_array_equal(parse("multi-krum(m=2)")(ROWS, f=3), expected)
    np.testing.assert_array_equal(GARS["multi-krum"].bind(m=2)(ROWS, f=3), expected)


def test_a_chain_by_name_is_the_chain_by_composition():
    by_name = parse("nnm+bucketing(s=3, seed=1)+median")
    by_hand = chain(nnm, bucketing.bind(s=3, seed=1), garfield.gars.median)
    assert by_name.name == by_hand.name == "nnm+bucketing+median"
    np.testing.assert_array_equal(by_name(ROWS, f=1), by_hand(ROWS, f=1))


def test_buckets_are_fewer_than_rows_so_more_rows_are_needed():
    assert parse("bucketing(s=3)+median").needs(2) == 13  # five buckets
    with pytest.raises(garfield.BoundError, match=r"bucketing\+median needs n >= 13"):
        init("bucketing(s=3)+median", n=12, f=2)


def test_fresh_buckets_are_drawn_every_time_unless_seeded():
    unseeded = parse("bucketing(s=2)+krum")
    assert len({unseeded(ROWS, f=1).tobytes() for _ in range(20)}) > 1
    seeded = parse("bucketing(s=2, seed=5)+krum")
    assert len({seeded(ROWS, f=1).tobytes() for _ in range(5)}) == 1


def test_one_call_seeds_every_part_of_a_rule_that_draws_and_leaves_a_fixed_seed_alone():
    rule = parse("bucketing+bucketing(seed=5)+dnc")
    assert rule.draws
    seeded = rule.seeded(3)
    assert [part.params["seed"] for part in (*seeded.stages, seeded)] == [3, 5, 3]
    assert not seeded.draws
    assert parse("nnm+median").seeded(3) == parse("nnm+median")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("medain", "medain is not a rule. Did you mean median?"),
        ("qqq", "qqq is not a rule. There are: "),
        ("nmm+krum", "nmm is not a pre-aggregation. Did you mean nnm?"),
        ("krum+nnm", "krum is a rule, not a pre-aggregation"),
        ("nnm", "ends in a pre-aggregation. Put a rule last"),
        ("multi-krum(k=3)", "k is not a parameter of multi-krum. There are: m"),
        ("bucketing(size=3)+krum", "size is not a parameter of bucketing"),
        ("multi-krum(m=", "is not understood"),
        ("multi-krum(3)", "is not understood"),
        ("multi-krum(m=__import__('os'))", "is not understood"),
        ("", "is not a rule"),
    ],
)
def test_a_name_that_is_not_known_is_explained(name, message):
    with pytest.raises(garfield.ConfigError, match=message.replace("(", r"\(")):
        parse(name)


@pytest.mark.parametrize(
    ("name", "n", "f", "message"),
    [
        ("krum", 6, 2, "krum needs n >= 7 inputs to tolerate f=2 faults, got n=6. "
         "Wait for more replies or lower f to 1 or less."),
        ("bulyan", 5, 1, r"got n=5. Wait for more replies or lower f to 0.$"),
        ("bulyan", 2, 0, "bulyan needs n >= 3 inputs to tolerate f=0 faults, got n=2. "
         "Wait for more replies to use it at all."),
        ("multi-krum(m=13)", 17, 3, r"multi-krum.m must be within 1..12 \(n - f - 2\), got 13."),
        ("dnc(iterations=9)", 17, 3, "may drop 27 of n=17 rows"),
        ("monna(reference=17)", 17, 3, "reference must be within 0..16, got 17"),
        ("centered-clipping(tau=-1)", 17, 3, "tau must be positive, got -1"),
        ("clipping(tau=0)+median", 17, 3, "tau must be positive, got 0"),
        ("bucketing(s=0)+median", 17, 3, "bucketing.s must be at least 1, got 0"),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit_are_refused_before_anything_starts(name, n, f, message):
    with pytest.raises(garfield.ConfigError, match=message):
        init(name, n=n, f=f)


def test_the_number_of_rows_must_be_as_announced():
    with pytest.raises(garfield.InputError, match="set up for n=17 rows, got 16"):
        init("median", n=17, f=3).aggregate(ROWS[1:])


def test_f_must_be_given():
    with pytest.raises(garfield.ConfigError, match="median needs f"):
        GARS["median"](ROWS)


@pytest.fixture
def forget():
    names = ["middle-row", "halve"]
    yield
    for name in names:
        GARS.remove(name)
        STAGES.remove(name)


def test_a_rule_of_ones_own_is_one_decorator(forget):
    @gar("middle-row", needs=lambda f: 2 * f + 1)
    def middle_row(rows, *, f, power=1.0):
        return np.sort(rows.matrix(), axis=0)[rows.n // 2] ** power

    np.testing.assert_allclose(init("middle-row", n=17, f=3).aggregate(ROWS), np.median(ROWS, 0))
    poisoned = ROWS.copy()
    poisoned[3] = np.nan
    with pytest.raises(garfield.BoundError):
        init("nnm+middle-row(power=1.0)", n=4, f=2)
    assert middle_row.max_f(17) == 8
    assert parse("nnm+middle-row")(poisoned, f=3).shape == (30,)


def test_a_stage_of_ones_own_is_one_decorator(forget):
    @garfield.stage("halve")
    def halve(rows, *, f):
        return rows.mixed(np.eye(rows.n) / 2)

    assert isinstance(halve, Stage)
    for name in ("median", "multi-krum", "bulyan"):
        expected = GARS[name](ROWS, f=3) / 2
        np.testing.assert_allclose(parse(f"halve+{name}")(ROWS, f=3), expected, atol=1e-6)


def test_a_name_is_taken_once(forget):
    with pytest.raises(garfield.ConfigError, match="krum is already a rule"):
        gar("krum", needs=lambda f: 1)(lambda rows, *, f: rows.median())


def test_bulyan_works_over_any_selecting_rule():
    rows = np.vstack([ROWS[:14], np.full((3, 30), 9.0, np.float32)])
    for base in ("krum", "multi-krum", "mda", "monna", "geometric-median", "caf"):
        explained = GARS["bulyan"](rows, f=3, base=base, explain=True)
        assert len(explained.trusted) == 17 - 2 * 3
        assert np.abs(explained.vector - ROWS[:14].mean(0)).max() < 2
    with pytest.raises(garfield.ConfigError, match="distances alone"):
        GARS["bulyan"](rows, f=3, base="median")
    with pytest.raises(garfield.UnknownName, match="Did you mean krum"):
        GARS["bulyan"](rows, f=3, base="krumm")


def test_the_public_names_are_these():
    assert sorted(garfield.__all__) == [
        "ATTACKS", "AccessDenied", "Aggregator", "AnswerNotFinite", "Attack", "BoundError",
        "BudgetSpent",
        "ByzantineServer", "ByzantineWorker", "ClusterError", "ClusterUnreachable", "ConfigError",
        "CoordinationUnreachable", "Deadlock", "DecodingError", "DivergedError", "Explained",
        "GARS", "GARs", "GarfieldError", "InputError", "LeaseLost", "MissingDependency",
        "NodeFailed", "ObjectAbsent", "ObjectDamaged", "ObjectMissing", "Peer", "Plan",
        "QuorumError", "RequestRefused", "Rule", "RunError", "STAGES", "Server", "SplitError",
        "Stage", "StateUnreachable", "StoreUnreachable", "TrainingRun", "UnknownName", "View",
        "Worker", "WriteConflict", "attack", "chain", "connect", "contract", "gar", "init",
        "run_as_peers", "run_locally", "set_threads", "stage", "sweep", "train",
        "variance_condition", "worst_kappa",
    ]  # fmt: skip
    for name in garfield.__all__:
        assert getattr(garfield, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        garfield.nothing  # noqa: B018
