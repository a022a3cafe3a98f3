"""AggregaThor: what is refused before anything starts, and what a mask does to a round."""

from types import SimpleNamespace

import numpy as np
import pytest

from garfield.apps.aggregathor import presence
from garfield.apps.settings import Settings
from garfield.core.errors import BoundError, ConfigError
from garfield.gars import GARS, bulyan, parse
from garfield.transport.contract import Holes
from tests import references

LOSSY = Settings().updated(
    app="aggregathor", model="digits_mlp", data="digits", workers=19, lossy_workers=8, loss=0.1
)


def test_workers_on_lossy_links_count_towards_f_by_default():
    assert LOSSY.check().numbers.f_w == 8
    assert LOSSY.updated(lossy_workers=5, byzantine_workers=3).check().numbers.f_w == 8


def test_those_that_a_mask_tells_of_do_not():
    masked = LOSSY.updated(fill="mask", gar="median", byzantine_workers=2)
    assert masked.check().numbers.f_w == 2
    assert masked.updated(lossy_models=True, f_workers=None).numbers.f_w == 10  # filled after all


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"f_workers": 7}, BoundError, r"8 workers on lossy links, filled by random, and 0 that "
         r"lie make 8 faults, and f is 7. Raise f_workers to 8.*fill = mask"),
        ({"f_workers": 8, "byzantine_workers": 1}, BoundError, r"8 workers.*1 that lie make 9"),
        ({"lossy_workers": 9}, BoundError, r"multi-krum needs n >= 21 .* f=9 .* n=19"),
        ({"gar": "bulyan"}, BoundError, r"bulyan needs n >= 35 .* f=8"),
        ({"gar": "multi-krum(m=10)"}, ConfigError, r"multi-krum.m must be within 1..9 \(n - f - 2"),
        ({"gar": "bulyan(m=10)", "lossy_workers": 4}, ConfigError,
         r"bulyan.m must be within 1..9 \(n - 2f - 2"),
        ({"asynchronous": True}, BoundError, r"needs n >= 19 .* f=8 .* n=11"),
        ({"fill": "mask"}, ConfigError, r"multi-krum cannot leave out single values.*median"),
        ({"fill": "mask", "gar": "median", "f_workers": 6}, BoundError,
         r"all 8 lossy workers lack a value, 11 of 19 are left, and median needs 13 .* f=6"),
        ({"fill": "mask", "gar": "median", "f_workers": 5, "lossy_workers": 9}, BoundError,
         r"all 9 lossy workers .* 10 of 19 are left.*needs 11.*Lower lossy_workers to 8"),
        ({"fill": "nothing"}, ConfigError, r"nothing is not a way to fill"),
        ({"loss": 1.0}, ConfigError, r"loss is a share"),
        ({"lossy_workers": 20, "fill": "mask", "gar": "median"}, ConfigError, r"within 0..19"),
        ({"lossy_workers": -1, "fill": "mask", "gar": "median"}, ConfigError, r"within 0..19"),
        ({"lossy_workers": 18, "byzantine_workers": 2, "fill": "mask", "gar": "median"},
         ConfigError, r"lossy_workers must be within 0..17 \(honest ones\), got 18"),
        ({"lossy_workers": 0}, ConfigError, r"Without lossy_workers nothing is lost"),
        ({"servers": 2}, ConfigError, r"aggregathor has one server"),
        ({"app": "ssmw"}, ConfigError, r"ssmw does not use lossy_workers"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_numbers_and_a_remedy(changes, error, message):
    with pytest.raises(error, match=message):
        LOSSY.updated(**changes).check()


@pytest.mark.parametrize(
    "changes",
    [
        {"gar": "multi-krum(m=5)"},  # of 11 rows, if all 8 that may fail are silent
        {"gar": "multi-krum(m=1)"},
        {"gar": "bulyan(m=7)", "lossy_workers": 4},  # of 15
        {"gar": "average"},  # the authors' baseline: it tolerates nothing, and may be shown to fail
        {"gar": "trimmed-mean", "fill": "mask", "byzantine_workers": 5},
        {"gar": "median", "fill": "mask", "f_workers": 5},  # one more would be too many
        {"lossy_workers": 0, "loss": 0.0},
    ],
)
def test_what_the_texts_allow_is_allowed(changes):
    LOSSY.updated(**changes).check()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"gar": "multi-krum(m=9)"},
            r"With 17 of n=19 rows, .* f=7 .* within 1..8 .* from 11 to 19",
        ),
        ({"gar": "multi-krum(m=6)"}, r"With 11 of n=19 rows, .* f=4 .* within 1..5"),
        ({"gar": "bulyan(m=8)", "lossy_workers": 4}, r"With 15 of n=19 .* f=3 .* within 1..7"),
    ],
)
def test_an_m_for_which_rows_may_be_too_few_when_some_are_silent_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        LOSSY.updated(**changes).check()


def test_the_first_honest_workers_have_the_lossy_links():
    links = LOSSY.updated(lossy_workers=2, byzantine_workers=1).lossy_links
    assert links.workers == {"worker-00", "worker-01"}
    assert links.servers == {"server-0"}
    without = LOSSY.updated(lossy_workers=2, exclude="worker-00")
    assert without.lossy_links.workers == {"worker-01", "worker-02"}
    assert LOSSY.updated(lossy_workers=0).lossy_links is None


def heard(names, holes, silent=()):
    rows = [None if name in silent else np.zeros(10, np.float32) for name in names]
    found = SimpleNamespace(names=names, holes=holes, rows=rows)
    return SimpleNamespace(heard=found, model=SimpleNamespace(size=10), workers=names)


def test_a_mask_is_made_from_the_holes_of_the_rows_that_came():
    assert presence(heard(("a", "b"), {}), 2) is None
    lost = Holes(np.array([False, True, True]), 4)
    mask = presence(heard(("a", "b"), {"b": lost}), 2)
    assert mask[0].all()
    assert mask[1].tolist() == [True] * 4 + [False] * 6


def test_silence_on_a_lossy_link_is_a_loss_and_elsewhere_it_is_not():
    holes = {"a": Holes(np.array([False, True, True]), 4)}
    mask = presence(heard(("a", "b", "c"), holes, silent=("b", "c")), 2)
    assert mask[0].any()
    assert not mask[1].any()
    assert mask[2] is None
    assert presence(heard(("a", "b", "c"), {}, silent=("c",)), 2) is None
    lost, whole, _ = presence(heard(("a", "b", "c"), {}, silent=("a",)), 2)
    assert not lost.any()
    assert whole.all()


def test_a_rule_with_a_mask_leaves_out_what_was_filled():
    rows = np.random.default_rng(0).standard_normal((19, 10)).astype(np.float32)
    holes = {f"w{i:02}": Holes(np.array([i % 2 == 0, False, True]), 4) for i in range(8)}
    names = tuple(f"w{i:02}" for i in range(19))
    mask = presence(heard(names, holes), 8)
    wild = np.where(mask, rows, 1e9).astype(np.float32)
    got = GARS["median"](list(wild), f=3, mask=mask)
    expected = [np.median(rows[[m[j] for m in mask], j]) for j in range(10)]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


# -- Bulyan's m -----------------------------------------------------------------------------------


def test_bulyan_with_m_of_one_is_bulyan():
    rows = np.random.default_rng(1).standard_normal((11, 50))
    np.testing.assert_array_equal(bulyan(rows, f=2, m=1), bulyan(rows, f=2))


@pytest.mark.parametrize("m", range(1, 6))
@pytest.mark.parametrize("lie", [1e6, 4.0, 1.5])
def test_bulyan_survives_f_liars_with_any_m_that_is_allowed(m, lie):
    rows = np.random.default_rng(2).standard_normal((11, 50))
    honest = np.delete(rows, [3, 8], axis=0)
    rows[[3, 8]] = honest.mean(axis=0) + lie
    result = parse(f"bulyan(m={m})")(rows, f=2)
    assert (result <= honest.max(axis=0)).all()
    assert (result >= honest.min(axis=0)).all()
    np.testing.assert_allclose(result, references.bulyan(rows, 2, m), atol=1e-9)


@pytest.mark.parametrize(("m", "n"), [(0, 11), (6, 11), (10, 15)])
def test_bulyan_with_another_m_is_refused(m, n):
    with pytest.raises(ConfigError, match=rf"within 1..{n - 6} \(n - 2f - 2\), got {m}"):
        bulyan(np.zeros((n, 3)), f=2, m=m)


def test_m_goes_with_no_other_base():
    with pytest.raises(ConfigError, match=r"bulyan\.m is Multi-Krum's"):
        bulyan(np.zeros((11, 3)), f=2, m=2, base="mda")
