"""State dicts, lists of arrays and nests of them: the same comes back, and misfits are named."""

import subprocess
import sys
from collections import OrderedDict, namedtuple
from types import MappingProxyType

import ml_dtypes
import numpy as np
import pytest
import torch

import garfield
from garfield import GARS
from garfield.kernels import torch_everywhere
from tests.jax_rows import allocated

RNG = np.random.default_rng
Pair = namedtuple("Pair", "left right")


def state_dict(seed):
    torch.manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    module[1].num_batches_tracked.fill_(seed)
    return module.state_dict()


def flat(structure):
    """The floats of a row, in the order of sorted keys."""
    if isinstance(structure, dict):
        return np.concatenate([flat(structure[key]) for key in sorted(structure)])
    if isinstance(structure, (list, tuple)):
        return np.concatenate([flat(part) for part in structure])
    if "float" not in str(structure.dtype):
        return np.empty(0)
    return np.asarray(torch.as_tensor(structure).double()).reshape(-1)


# -- the same comes back ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["median", "multi-krum", "nnm+trimmed-mean", "centered-clipping"])
def test_state_dicts_give_a_state_dict_that_the_module_loads(name):
    rows = [state_dict(seed) for seed in range(9)]
    aggregator = garfield.init(name, n=9, f=2)
    for _ in range(2):  # what is remembered between rounds has the structure too
        result = aggregator.aggregate(rows)
        assert type(result) is OrderedDict
        assert list(result) == list(rows[0])
        assert [v.dtype for v in result.values()] == [v.dtype for v in rows[0].values()]
        assert [v.shape for v in result.values()] == [v.shape for v in rows[0].values()]
    plain = garfield.init(name, n=9, f=2)
    for _ in range(2):
        expected = plain.aggregate([flat(row).astype(np.float32) for row in rows])
    np.testing.assert_allclose(flat(result), expected, atol=1e-6)
    assert result._metadata == rows[0]._metadata
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    module.load_state_dict(result)


def test_integers_come_from_the_first_trusted_row_as_a_copy():
    rows = [state_dict(seed) for seed in range(9)]
    for value in rows[0].values():
        value.copy_(value * 0 + 999)
    found = GARS["multi-krum"](rows, f=2, explain=True)
    counter = found.vector["1.num_batches_tracked"]
    assert found.trusted[0] > 0
    assert counter == found.trusted[0]
    counter.fill_(77)
    assert rows[found.trusted[0]]["1.num_batches_tracked"] == found.trusted[0]


def test_where_a_rule_trusts_no_row_integers_come_from_the_one_nearest_the_result():
    rows = [{"w": np.full(5, float(i)), "seen": np.int64([i]), "flag": np.array(i > 3)} for i in
            (900, 1, 2, 3, 4)]  # fmt: skip
    result = GARS["median"](rows, f=1)
    np.testing.assert_array_equal(result["w"], np.full(5, 3.0))
    assert result["seen"] == [3]
    assert result["flag"].dtype == bool
    assert not result["flag"]
    rows[0]["w"][0] = np.nan
    assert GARS["median"](rows, f=1)["seen"] in ([2], [3])


@pytest.mark.parametrize(
    "make",
    [
        lambda w, b: [w, b],
        lambda w, b: (w, [b, {"deep": w}]),
        lambda w, b: {"b": b, 3: w, "a": {"x": (w, b)}},
        lambda w, b: Pair(w, b),
        lambda w, b: MappingProxyType({"w": w, "b": b}),
        lambda w, b: w,
        lambda w, b: {"w": w, "alpha": 16.0, "name": "lora", "none": None, "rank": 8},
    ],
)
def test_any_nest_of_arrays_comes_back_as_it_was(make):
    rows = [make(RNG(i).random((2, 3)), RNG(i).random(4)) for i in range(5)]
    middle = [np.median([RNG(i).random(size) for i in range(5)], axis=0) for size in ((2, 3), 4)]
    result = GARS["median"](rows, f=1)
    assert type(result) is type(rows[0])
    np.testing.assert_equal(*(dict(each) if isinstance(each, MappingProxyType) else each
                              for each in (result, make(*middle))))  # fmt: skip


def test_leaves_keep_their_dtypes_and_float64_its_precision():
    exact = 1 + 2.0**-40

    def row(scale):
        return {
            "f64": np.full(2, exact * scale), "f16": np.full(2, 0.5 * scale, np.float16),
            "bf16": np.full((1, 2), scale, ml_dtypes.bfloat16), "f32": np.float32([[scale]]),
            "torch": torch.full((2,), scale, dtype=torch.bfloat16), "empty": np.empty((0, 3)),
            "scalar": torch.tensor(float(scale)),
        }  # fmt: skip

    result = GARS["median"](gradients=[row(1), row(2), row(3)], f=1)
    for name, value in row(2).items():
        assert result[name].dtype == value.dtype
        assert result[name].shape == value.shape
        assert (result[name] == value).all()


def test_keys_may_stand_in_any_order():
    one, two, three = ({"a": np.float32([i]), "b": np.float32([10 * i])} for i in (1, 2, 3))
    rows = [one, {"b": two["b"], "a": two["a"]}, three]
    assert GARS["median"](rows, f=1) == {"a": [2], "b": [20]}


def test_an_array_of_rows_of_any_shape_is_taken_row_by_row():
    images = RNG(0).random((5, 2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(GARS["median"](images, f=1), np.median(images, axis=0))
    assert GARS["median"](torch.tensor([[1.0], [2.0], [4.0]])[:, 0], f=1) == 2.0


def test_the_torch_path_for_gpus_gives_the_same():
    rows = [state_dict(seed) for seed in range(9)]
    rows[3]["0.weight"][0, 0] = np.nan
    expected = GARS["krum"](rows, f=2, explain=True)
    with torch_everywhere():
        found = GARS["krum"](rows, f=2, explain=True)
    assert found.trusted == expected.trusted
    assert found.set_aside == {3: "non-finite"}
    np.testing.assert_allclose(flat(found.vector), flat(expected.vector), atol=1e-6)


def test_a_reference_has_the_structure_of_the_rows():
    rows = [[RNG(i).random((2, 2)).astype(np.float32), np.float32([i])] for i in range(5)]
    zero = [np.zeros((2, 2), np.float32), np.zeros(1, np.float32)]
    rule = GARS["centered-clipping"]
    found = rule(rows, f=1, tau=0.1, reference=zero)
    expected = rule([flat(row) for row in rows], f=1, tau=0.1, reference=np.zeros(5))
    np.testing.assert_allclose(flat(found), expected, atol=1e-6)
    with pytest.raises(garfield.InputError, match=r"reference .* 1 parts where a row has 2"):
        rule(rows, f=1, reference=zero[:1])


def test_moving_averages_that_remember_begin_anew_for_another_model():
    aggregator = garfield.init("centered-clipping(tau=0.5)", n=5, f=1)
    small = [[RNG(i).random(3), RNG(i).random(2)] for i in range(5)]
    large = [[RNG(i).random(4), RNG(i).random(2)] for i in range(5)]
    aggregator.aggregate(small)
    again = aggregator.aggregate(large)
    np.testing.assert_array_equal(
        flat(again), flat(garfield.init("centered-clipping(tau=0.5)", n=5, f=1).aggregate(large))
    )


# -- other frameworks -----------------------------------------------------------------------------


def test_jax_arrays_give_jax_arrays_and_are_read_in_place():
    pytest.importorskip("jax")  # whose threads do not bear the forks of other tests
    done = subprocess.run([sys.executable, "-m", "tests.jax_rows"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "all kept\n"), done.stderr


def test_tensorflow_tensors_give_tensorflow_tensors():
    tf = pytest.importorskip("tensorflow")
    rows = [[tf.Variable(tf.fill((2, 3), float(i))), tf.constant([i])] for i in range(5)]
    weights, count = GARS["median"](rows, f=1)
    assert isinstance(weights, tf.Tensor)
    np.testing.assert_array_equal(weights, np.full((2, 3), 2.0))
    assert count == [2]


class Foreign:
    """An array of some other library: DLPack is all that is known of it."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_other_libraries_are_read_through_dlpack_and_answered_in_numpy():
    rows = [{"w": Foreign(np.full((2, 2), float(i), np.float32))} for i in range(5)]
    result = GARS["median"](rows, f=1)["w"]
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, np.full((2, 2), 2.0))


# -- misfits --------------------------------------------------------------------------------------

GOOD = {"w": np.ones((2, 3), np.float32), "n": np.int64([1])}
DEEP: list = []
for _ in range(500):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({**GOOD, "w": GOOD["w"].T}, "at ['w'] shape (3, 2) where row 0 has (2, 3)"),
        ({**GOOD, "w": np.ones((2, 3))}, "at ['w'] numpy float64 where row 0 has numpy float32"),
        ({"w": GOOD["w"]}, "no key 'n', which row 0 has"),
        ({**GOOD, "more": GOOD["w"]}, "a key 'more', which row 0 has not"),
        ({**GOOD, "w": "x"}, "at ['w'] str where row 0 has numpy float32"),
        ({**GOOD, "w": [GOOD["w"]]}, "at ['w'] a list where row 0 has an array of numpy float32"),
        ({**GOOD, "w": np.array([None])}, "at ['w'] dtype object, which is none of"),
        ({**GOOD, "w": torch.eye(3).to_sparse()}, "layout torch.sparse_coo"),
        (OrderedDict(GOOD), "a OrderedDict where row 0 has a dict"),
        (np.ones(7, np.float32), "an array of numpy float32 where row 0 has a dict"),
        ("evil", "a str where row 0 has a dict"),
        (DEEP, "a list where row 0 has a dict"),
        ({}, "no key 'n'"),
    ],
)  # fmt: skip
def test_a_row_that_is_not_like_most_is_set_aside_and_named(bad, why):
    rows = [GOOD, GOOD, GOOD, bad, GOOD]
    found = GARS["median"](rows, f=1, explain=True)
    assert set(found.set_aside) == {3}
    assert found.set_aside[3].startswith("misfit: ")
    assert why in found.set_aside[3]
    assert found.f == 0
    np.testing.assert_equal(found.vector, GOOD)
    with pytest.raises(garfield.InputError, match=r"average: row 3 does not fit .*misfit"):
        GARS["average"](rows)


def test_the_first_row_may_be_the_liar_and_vectors_of_another_length_are_misfits_too():
    rows = [np.zeros(4), *([np.ones(3)] * 4)]
    found = GARS["krum"](rows, f=1, explain=True)
    assert found.set_aside == {0: "misfit: shape (4,) where row 1 has (3,)"}
    np.testing.assert_array_equal(found.vector, np.ones(3))


def test_misfits_silence_and_nan_count_together_and_too_many_are_refused():
    rows = [GOOD] * 9
    rows[1], rows[4], rows[6] = {**GOOD, "w": GOOD["w"] * np.nan}, None, [1]
    found = GARS["median"](rows, f=3, explain=True)
    assert found.set_aside[1] == "non-finite"
    assert found.set_aside[4] == "missing"
    assert found.set_aside[6] == "misfit: a list where row 0 has a dict"
    assert found.f == 1
    with pytest.raises(garfield.InputError, match=r"4 \(missing\), 6 \(misfit: a list"):
        GARS["median"](rows, f=1)
    aggregator = garfield.init("median", n=9, f=3)
    np.testing.assert_equal(aggregator.aggregate(rows), GOOD)


def test_a_presence_mask_is_for_vectors():
    with pytest.raises(garfield.InputError, match="mask goes with plain vectors"):
        GARS["median"]([GOOD] * 3, f=1, mask=np.ones((3, 6), bool))


# -- memory ---------------------------------------------------------------------------------------

LAYERS, WIDTH = 20, 10_000
BYTES = LAYERS * WIDTH * 4


def large(seed):
    return {f"layer.{i}": np.full((100, WIDTH // 100), seed, np.float32) for i in range(LAYERS)}


@pytest.mark.parametrize("name", ["median", "multi-krum"])
def test_floats_are_copied_once_into_rows_and_the_result_not_at_all(name):
    rows = [large(seed) for seed in range(9)]
    assert allocated(lambda: GARS[name](rows, f=2)) < 9 * BYTES + 1.5 * BYTES


def test_rows_of_one_array_each_are_not_copied():
    rows = [{"w": np.full((1000, 200), i, np.float32)} for i in range(9)]
    assert allocated(lambda: GARS["median"](rows, f=2)) < 1.5 * BYTES


def test_of_a_generators_rows_one_is_held_at_a_time():
    aggregator = garfield.init("median", n=9, f=2)
    draw = lambda: aggregator.aggregate(large(seed) for seed in range(9))  # noqa: E731
    assert allocated(draw) < 9 * BYTES + 2.5 * BYTES  # as rows, and one as it came
    np.testing.assert_equal(draw(), large(4))
