"""What is lost on purpose, and what stands for it."""

import numpy as np
import pytest

from garfield.core.errors import ConfigError, UnknownName
from garfield.transport.contract import Holes, Key
from garfield.transport.datagrams.filling import Filler
from garfield.transport.datagrams.links import FILLS, LossyLinks, Repeats

BLOCK = 100
LENGTH = 950  # the last block is half as long
KEY = Key("gradient", 5)
LOST = np.isin(np.arange(10), [2, 7, 9])
HOLES = Holes(LOST, BLOCK)
WHERE = np.repeat(LOST, BLOCK)[:LENGTH]


def links(**changes):
    return LossyLinks(frozenset(["w"]), frozenset(["s"]), **changes)


def gradient(seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(LENGTH)).astype(np.float32)


def filled(filler, row, key=KEY, sender="w"):
    damaged = row.copy()
    damaged[WHERE] = 0
    filler.complete(sender, key, damaged, HOLES)
    return damaged


@pytest.mark.parametrize("fill", FILLS)
def test_what_came_stays_as_it_is_and_what_is_written_is_finite(fill):
    row = filled(Filler("s", links(fill=fill)), gradient())
    np.testing.assert_array_equal(row[~WHERE], gradient()[~WHERE])
    assert np.isfinite(row).all()


def test_zeros_are_zeros():
    assert not filled(Filler("s", links(fill="zeros")), gradient())[WHERE].any()


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e30])
def test_random_values_have_the_size_of_the_gradient(scale):
    row = filled(Filler("s", links(fill="random")), gradient(scale=scale))
    length = np.linalg.norm(gradient(scale=scale)[~WHERE].astype(np.float64))
    assert 0.8 < np.std(row[WHERE].astype(np.float64)) / length < 1.2
    assert abs(np.mean(row[WHERE].astype(np.float64))) < 0.3 * length


def test_random_values_stay_numbers_even_if_the_gradient_is_nearly_too_large():
    row = np.full(LENGTH, 3e38, np.float32)
    assert np.isfinite(filled(Filler("s", links(fill="random")), row)).all()


def test_random_values_come_from_seed_link_and_key_alone():
    def values(seed=1, sender="w", key=KEY):
        return filled(Filler("s", links(fill="random", seed=seed)), gradient(), key, sender)[WHERE]

    np.testing.assert_array_equal(values(), values())
    for other in (values(seed=2), values(sender="v"), values(key=Key("gradient", 6))):
        assert not np.array_equal(values(), other)


@pytest.mark.parametrize("fill", ["last", "mask"])
def test_the_last_round_stands_for_what_is_lost_and_nothing_in_the_first(fill):
    filler = Filler("s", links(fill=fill))
    assert not filled(filler, gradient(1))[WHERE].any()
    filler.complete("w", Key("gradient", 6), gradient(2), Holes(np.zeros(10, bool), BLOCK))
    filler.complete("v", Key("gradient", 6), gradient(3), Holes(np.zeros(10, bool), BLOCK))
    third = filled(filler, gradient(4), Key("gradient", 7))
    np.testing.assert_array_equal(third[WHERE], gradient(2)[WHERE])
    fourth = filled(filler, gradient(5), Key("gradient", 8))
    np.testing.assert_array_equal(fourth[WHERE], gradient(2)[WHERE])  # still the last known


def test_the_last_row_is_kept_though_its_memory_is_used_again():
    filler, row = Filler("s", links(fill="last")), gradient(1)
    filler.complete("w", KEY, row, Holes(np.zeros(10, bool), BLOCK))
    row[:] = 7
    np.testing.assert_array_equal(filled(filler, gradient(2))[WHERE], gradient(1)[WHERE])


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.1, 0.3])
def test_the_share_that_is_lost_is_the_one_that_was_set(loss):
    lossy = links(loss=loss, seed=3)
    lost = [lossy.dropped(("s", "w"), Key("gradient", t), 1000) for t in range(50)]
    assert abs(np.mean(lost) - loss) <= 0.2 * loss
    np.testing.assert_array_equal(lost[7], lossy.dropped(("s", "w"), Key("gradient", 7), 1000))
    if loss:
        assert not np.array_equal(lost[7], lost[8])
        for link, again in ((("s", "v"), 0), (("s", "w"), 1)):
            other = lossy.dropped(link, Key("gradient", 7), 1000, again)
            assert not np.array_equal(lost[7], other)


def test_pulls_of_the_same_key_are_told_apart_and_only_the_last_key_is_remembered():
    counts = Repeats()
    assert [counts.again("w", KEY) for _ in range(3)] == [0, 1, 2]
    assert counts.again("v", KEY) == 0
    assert counts.again("w", Key("model", 5)) == 0
    assert counts.again("w", KEY) == 3
    for step in range(100):
        assert counts.again("w", Key("gradient", step + 10)) == 0
    assert len(counts._last) == 3


def test_only_gradients_of_lossy_workers_to_servers_and_models_if_chosen_are_sent_so():
    some = LossyLinks(frozenset(["w"]), frozenset(["s"]))
    assert some.between("s", "w", "gradient")
    assert not some.between("s", "v", "gradient")
    assert not some.between("v", "w", "gradient")  # a liar that looks at honest gradients
    assert not some.between("w", "s", "model")
    both = LossyLinks(frozenset(["w"]), frozenset(["s"]), models=True)
    assert both.between("w", "s", "model")
    assert not both.between("v", "s", "model")


def test_a_policy_or_a_share_that_makes_no_sense_is_refused():
    with pytest.raises(UnknownName, match=r"zeroes is not a way.*Did you mean zeros"):
        links(fill="zeroes")
    for loss in (-0.1, 1.0, 10):
        with pytest.raises(ConfigError, match="loss is a share"):
            links(loss=loss)
