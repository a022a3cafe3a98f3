"""Secure aggregation: the sum and nothing else, whoever is lost on the way."""

import hashlib
from dataclasses import replace
from math import fsum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from garfield import GARS
from garfield.core.errors import ConfigError, InputError, RunError
from garfield.fedgan.secure_aggregation import (
    AggregationDevice,
    AggregationServer,
    FixedPoint,
    PublicKeys,
    Revealed,
    check_rule_allows_it,
    masks,
    shamir,
)

SESSION = b"run g, round 7, token 3"
LENGTH = 50


def drawn(seed):
    """Bytes that depend on a seed alone."""
    count = 0

    def random_bytes(size):
        nonlocal count
        count += 1
        return hashlib.shake_256(f"{seed} {count}".encode()).digest(size)

    return random_bytes


def vectors(names, seed=0, length=LENGTH, clip=1.0):
    rows = np.random.default_rng(seed).uniform(-clip, clip, (len(names), length))
    return dict(zip(names, rows, strict=True))


class Round:
    """Devices and a server, and who is lost before each step."""

    def __init__(self, count, threshold, *, numbers=None, length=LENGTH):
        self.numbers = numbers or FixedPoint(count, 1.0)
        self.server = AggregationServer(SESSION, threshold, length, self.numbers)
        self.devices = {
            f"device-{i}": AggregationDevice(f"device-{i}", SESSION, threshold, drawn(i))
            for i in range(count)
        }

    def lose(self, names):
        return [name for name in self.devices if name not in names]

    def advertise(self, lost=()):
        for name in self.lose(lost):
            self.server.add_keys(name, self.devices[name].advertise())

    def share(self, lost=()):
        everyone = self.server.everyone
        for name in everyone:
            if name not in lost:
                self.server.add_sealed(name, self.devices[name].share(everyone))

    def mask(self, rows, lost=()):
        masked = {}
        for name in self.server._sealed:
            words = self.numbers.encode(rows[name])
            sealed = self.server.sealed_for(name)
            if name not in lost:
                masked[name] = self.devices[name].mask(sealed, words)
                self.server.add_masked(name, masked[name])
        return masked

    def reveal(self, lost=()):
        arrived = self.server.arrived
        told = {name: self.devices[name].reveal(arrived) for name in sorted(arrived - set(lost))}
        return self.server.unmask(told)

    def run(self, rows, *lost):
        at_1, at_2, at_3, at_4 = lost or [(), (), (), ()]
        self.advertise(at_1)
        self.share(at_2)
        self.mask(rows, at_3)
        return self.reveal(at_4)


# -- the sum --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [32, 64])
def test_the_mean_is_the_plain_mean_within_the_stated_error(bits):
    numbers = FixedPoint(5, 2.0, bits)
    run = Round(5, 4, numbers=numbers)
    rows = vectors(run.devices, clip=2.0)
    mean = run.server.mean(run.run(rows))
    assert np.abs(mean - np.mean([*rows.values()], axis=0)).max() <= numbers.error
    assert numbers.error < (1e-8 if bits == 32 else 1e-14)


def test_weights_are_part_of_the_vectors_and_their_sum_is_the_servers_to_know():
    run = Round(4, 3)
    rows = vectors(run.devices)
    weights = dict(zip(run.devices, (0.1, 0.2, 0.3, 0.4), strict=True))
    weighted = {name: weights[name] * row for name, row in rows.items()}
    total = run.run(weighted, (), (), ["device-3"], ())
    mean = run.server.mean(total, weight=0.6)
    expected = np.average([rows[name] for name in list(rows)[:3]], axis=0, weights=[1, 2, 3])
    assert np.abs(mean - expected).max() <= run.numbers.error * 3 / 0.6


@st.composite
def losses(draw):
    """Devices, a threshold, and who is lost before each step, down to the threshold."""
    count = draw(st.integers(2, 7))
    threshold = draw(st.integers(count // 2 + 1, count))
    names = draw(st.permutations([f"device-{i}" for i in range(count)]))
    lost, spare = [], count - threshold
    for _ in range(4):
        here = draw(st.integers(0, spare))
        lost.append(names[:here])
        names, spare = names[here:], spare - here
    return count, threshold, lost


@settings(max_examples=40)
@given(losses(), st.sampled_from([32, 64]), st.integers(0, 2**32))
def test_whoever_is_lost_the_sum_of_those_who_arrived_is_right(lost, bits, seed):
    count, threshold, (at_1, at_2, at_3, at_4) = lost
    run = Round(count, threshold, numbers=FixedPoint(count, 1.0, bits))
    rows = vectors(run.devices, seed)
    total = run.run(rows, at_1, at_2, at_3, at_4)
    there = [name for name in run.devices if name not in {*at_1, *at_2, *at_3}]
    assert run.server.arrived == set(there)
    expected = sum(run.numbers.encode(rows[name]) for name in there)
    np.testing.assert_array_equal(total, expected)


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_below_the_threshold_a_round_is_given_up(step):
    run = Round(5, 4)
    lost = [()] * 4
    lost[step - 1] = ["device-1", "device-3"]
    with pytest.raises(RunError, match=r"Only 3 devices have .*, and 4 are needed"):
        run.run(vectors(run.devices), *lost)


# -- what is hidden -------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [32, 64])
def test_what_the_server_sees_of_one_device_is_uniform(bits):
    length = 1 << 15
    run = Round(3, 2, numbers=FixedPoint(3, 1.0, bits), length=length)
    rows = dict.fromkeys(run.devices, np.full(length, 0.25))  # as far from uniform as can be
    run.advertise()
    run.share()
    for words in run.mask(rows).values():
        found = np.bincount(words.view(np.uint8), minlength=256)
        expected = words.nbytes / 256
        chi_squared = float(((found - expected) ** 2 / expected).sum())
        assert 150 < chi_squared < 400  # 255 ± 23 if uniform; 1e-9 of all draws lie beyond
        for at in range(words.itemsize):  # each byte of a word by itself, the highest too
            part = words.view(np.uint8)[at :: words.itemsize]
            counts = np.bincount(part, minlength=256)
            assert ((counts - len(part) / 256) ** 2 / (len(part) / 256)).sum() < 400
        assert len(np.unique(words)) > 0.99 * length
    assert np.abs(run.server.mean(run.reveal()) - 0.25).max() <= run.numbers.error


def test_words_of_two_devices_with_the_same_vector_have_nothing_in_common():
    run = Round(3, 2, length=1 << 14)
    run.advertise()
    run.share()
    masked = list(run.mask(dict.fromkeys(run.devices, np.zeros(1 << 14))).values())
    difference = (masked[0] - masked[1]).view(np.uint8)
    counts, expected = np.bincount(difference, minlength=256), difference.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < 400


def test_a_vector_that_comes_late_stays_hidden_though_its_key_was_revealed():
    run = Round(4, 3)
    rows = dict.fromkeys(run.devices, np.full(LENGTH, 0.5))
    run.advertise()
    run.share()
    run.mask(rows, lost=["device-3"])
    late = run.devices["device-3"].mask(
        run.server.sealed_for("device-3"), run.numbers.encode(rows["device-3"])
    )
    run.reveal()
    with pytest.raises(InputError, match="No vector of device-3 is waited for"):
        run.server.add_masked("device-3", late)
    # all that the server knows: device-3's pairwise masks are out, its own is not
    secret = run.devices["device-3"]._masking_secret
    key = masks.private_key(secret)
    for other in ("device-0", "device-1", "device-2"):
        keys = run.server.everyone[other].masking
        seed = masks.agreed_key(key, keys, "masking", SESSION, ("device-3", other))
        masks.add_mask(late, seed, SESSION)
    hidden = late - run.numbers.encode(rows["device-3"])
    own = np.zeros(LENGTH, np.uint32)
    masks.add_mask(own, run.devices["device-3"]._seed, SESSION)
    np.testing.assert_array_equal(hidden, own)  # nothing but its own mask hides it
    assert len(np.unique(own)) > LENGTH - 3


def test_a_device_reveals_once_and_one_thing_of_each():
    run = Round(4, 3)
    run.advertise()
    run.share()
    run.mask(vectors(run.devices), lost=["device-3"])
    device = run.devices["device-0"]
    told = device.reveal(["device-0", "device-1", "device-2"])
    assert set(told.masking_keys) == {"device-3"}
    assert set(told.self_masks) == {"device-0", "device-1", "device-2"}
    with pytest.raises(RunError, match=r"device-0 is at step 4 .* each is done once, in order"):
        device.reveal(["device-0", "device-1", "device-3"])


@pytest.mark.parametrize(
    ("arrived", "error"),
    [
        (["device-0", "device-1", "stranger"], InputError),
        (["device-1", "device-2", "device-3"], InputError),
        (["device-0", "device-1"], RunError),
    ],
)
def test_a_device_helps_with_no_sum_that_it_should_not(arrived, error):
    run = Round(4, 3)
    run.advertise()
    run.share()
    run.mask(vectors(run.devices))
    with pytest.raises(error):
        run.devices["device-0"].reveal(arrived)


# -- devices and servers that lie -----------------------------------------------------------------


def test_wrong_pieces_spoil_no_sum():
    run = Round(5, 3)
    rows = vectors(run.devices)
    run.advertise()
    run.share()
    run.mask(rows, lost=["device-4"])
    told = {name: run.devices[name].reveal(run.server.arrived) for name in run.server.arrived}
    lies = {name: bytes([7]) * shamir.PIECE for name in run.devices}
    told["device-0"] = Revealed(lies, lies)
    total = run.server.unmask(told)
    expected = sum(run.numbers.encode(rows[f"device-{i}"]) for i in range(4))
    np.testing.assert_array_equal(total, expected)
    told["device-1"] = Revealed({}, {})
    with pytest.raises(RunError, match="cannot be put together: fewer than 3 devices gave"):
        run.server.unmask(told)


@pytest.mark.parametrize("liars", [("device-0",), ("device-1", "device-10")])
def test_a_few_wrong_pieces_spoil_no_sum_of_many(liars):
    """Of 15 pieces 8 are needed: 6435 choices, of which the first 1716 hold the first piece."""
    run = Round(15, 8)
    rows = vectors(run.devices)
    run.advertise()
    run.share()
    run.mask(rows)
    told = {name: run.devices[name].reveal(run.server.arrived) for name in run.server.arrived}
    lies = {name: bytes([7]) * shamir.PIECE for name in run.devices}
    told |= dict.fromkeys(liars, Revealed({}, lies))
    expected = sum(run.numbers.encode(row) for row in rows.values())
    np.testing.assert_array_equal(run.server.unmask(told), expected)


def test_pieces_that_cannot_be_read_are_of_no_use_and_harm_nobody():
    run = Round(4, 3)
    rows = vectors(run.devices)
    run.advertise()
    everyone = run.server.everyone
    for name, device in run.devices.items():
        sealed = device.share(everyone)
        if name == "device-2":
            sealed["device-0"] = b"\0" * len(sealed["device-0"])
        run.server.add_sealed(name, sealed)
    run.mask(rows, lost=["device-2"])
    with pytest.raises(RunError, match="key of device-2 cannot be put together"):
        run.reveal()  # three are left, and one of them has no piece of it
    again = Round(5, 3)
    rows = vectors(again.devices)
    again.advertise()
    everyone = again.server.everyone
    for name, device in again.devices.items():
        sealed = device.share(everyone)
        if name == "device-2":
            sealed["device-0"] = b"short"
        again.server.add_sealed(name, sealed)
    again.mask(rows, lost=["device-2"])
    expected = sum(again.numbers.encode(rows[f"device-{i}"]) for i in (0, 1, 3, 4))
    np.testing.assert_array_equal(again.reveal(), expected)


def test_sealed_pieces_are_for_their_receiver_alone():
    run = Round(3, 2)
    run.advertise()
    run.share()
    first = run.devices["device-0"]
    sealed = {
        "device-1": run.server._sealed["device-1"]["device-2"],  # meant for another
        "device-2": run.server._sealed["device-2"]["device-0"],
    }
    first.mask(sealed, run.numbers.encode(np.zeros(LENGTH)))
    assert set(first._pieces) == {"device-0", "device-2"}


def test_what_a_server_may_not_tell_a_device():
    run = Round(4, 3)
    run.advertise()
    everyone = dict(run.server.everyone)
    device = AggregationDevice("device-0", SESSION, 3, drawn(0))
    with pytest.raises(InputError, match="more than half and at most all"):
        AggregationDevice("device-0", SESSION, 2, drawn(0)).share(everyone)
    with pytest.raises(InputError, match="not among those who advertised"):
        device.share({name: keys for name, keys in everyone.items() if name != "device-0"})
    twins = {**everyone, "device-2": everyone["device-1"]}
    with pytest.raises(InputError, match="the same key"):
        AggregationDevice("device-0", SESSION, 3, drawn(0)).share(twins)
    small = {**everyone, "device-2": replace(everyone["device-2"], sealing=bytes(32))}
    with pytest.raises(InputError, match="a key that is none"):
        AggregationDevice("device-0", SESSION, 3, drawn(0)).share(small)
    with pytest.raises(RunError, match="is at step 1"):
        AggregationDevice("device-0", SESSION, 3).mask({}, np.zeros(3, np.uint32))


def test_what_devices_may_not_send():
    run = Round(3, 2, numbers=FixedPoint(3, 1.0))
    run.advertise()
    with pytest.raises(InputError, match="There are 3 devices already"):
        run.server.add_keys("device-9", run.devices["device-0"].advertise())
    run.share()
    with pytest.raises(InputError, match="come too late"):
        run.server.add_keys("device-9", run.devices["device-0"].advertise())
    with pytest.raises(InputError, match="one piece for each of the 2 others"):
        run.server.add_sealed("device-0", {"device-1": b""})
    pieces = {"device-1": bytes(1000), "device-2": b""}
    with pytest.raises(InputError, match="beyond 148 bytes"):
        run.server.add_sealed("device-0", pieces)
    for wrong in (np.zeros(LENGTH + 1, np.uint32), np.zeros(LENGTH, np.uint64)):
        with pytest.raises(InputError, match=r"instead of \(50,\) × uint32"):
            run.server.add_masked("device-0", wrong)
    with pytest.raises(InputError, match="No vector of stranger"):
        run.server.add_masked("stranger", np.zeros(LENGTH, np.uint32))
    with pytest.raises(InputError, match="has 32 bytes"):
        PublicKeys(b"short", bytes(32), bytes(32))


# -- parts ----------------------------------------------------------------------------------------


@given(st.binary(min_size=32, max_size=32), st.integers(1, 6), st.integers(0, 4), st.data())
def test_any_threshold_of_the_pieces_give_the_secret(secret, threshold, more, data):
    count = threshold + more
    pieces = shamir.split(secret, threshold, count, drawn(1))
    numbered = dict(enumerate(pieces, start=1))
    chosen = data.draw(st.permutations(sorted(numbered)))[:threshold]
    assert shamir.joined({at: numbered[at] for at in chosen}) == secret
    if threshold > 1:
        fewer = {at: numbered[at] for at in chosen[1:]}
        assert shamir.joined(fewer) != secret


def test_fewer_pieces_fit_every_secret():
    """Of two secrets, one piece of two can belong to either: it says nothing."""
    pieces = shamir.split(b"a" * 32, 2, 3, drawn(1))
    value = int.from_bytes(pieces[0], "little")
    other = int.from_bytes(b"b" * 32, "little")
    second = (2 * value - other) % shamir.PRIME  # on the line through other at 0, value at 1
    found = shamir.joined({1: pieces[0], 2: second.to_bytes(shamir.PIECE, "little")})
    assert found == b"b" * 32


def test_the_field_is_one():
    """Lucas and Lehmer: 2^p − 1 is prime if s_{p−2} = 0, where s_0 = 4 and s_{k+1} = s_k² − 2."""
    s = 4
    for _ in range(521 - 2):
        s = (s * s - 2) % shamir.PRIME
    assert s == 0


@given(st.integers(1, 100), st.sampled_from([32, 64]), st.floats(1e-6, 1e6), st.integers(0, 2**32))
def test_sums_of_the_largest_numbers_do_not_overflow(count, bits, clip, seed):
    numbers = FixedPoint(count, clip, bits)
    rows = np.random.default_rng(seed).choice([-clip, clip, 0.3 * clip, 0.0], (count, 8))
    rows[:, 0], rows[:, 1] = clip, -clip
    total = np.zeros(8, numbers.dtype)
    for row in rows:
        total += numbers.encode(row)
    mean = np.array([fsum(column) / count for column in rows.T])  # numpy's own sum rounds, too
    assert np.abs(numbers.decode(total) / count - mean).max() <= numbers.error


@pytest.mark.parametrize("wrong", [1.01, -1.01, np.nan, np.inf])
def test_numbers_beyond_the_clip_are_refused(wrong):
    with pytest.raises(InputError, match="holds numbers within ±1, and this one"):
        FixedPoint(3, 1.0).encode([0.5, wrong])


@pytest.mark.parametrize(
    "settings", [{"most": 0}, {"clip": 0.0}, {"clip": float("nan")}, {"bits": 16}]
)
def test_numbers_need_a_range(settings):
    with pytest.raises(ConfigError):
        FixedPoint(**{"most": 3, "clip": 1.0, **settings})


def test_it_is_refused_with_every_robust_rule():
    check_rule_allows_it("average")
    for rule in GARS:
        if rule != "average":
            with pytest.raises(ConfigError, match=f"and {rule} has to compare them with each"):
                check_rule_allows_it(rule)
