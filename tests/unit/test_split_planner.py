"""Where to cut: the thesis's Table 5.3 and Figure 5.12, and what ours does better."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from garfield.core.errors import ConfigError, UnknownName
from garfield.split.planner import (
    PLANNERS,
    Costs,
    Plan,
    ServerLoad,
    Situation,
    candidates,
    choose,
    crossing_bps,
    distinct_cuts,
    planner,
    predict,
    situation_of,
)
from garfield.split.profile import LayerProfile, ModelProfile

FLOAT32, UINT8, JPEG = 602_112, 150_528, 16_000

ALEXNET = (
    774_400, 774_400, 186_624, 559_872, 559_872, 129_792, 259_584, 259_584, 173_056, 173_056,
    173_056, 173_056, 36_864, 36_864, 36_864, 36_864, 16_384, 16_384, 16_384, 16_384, 16_384, 4_000,
)  # fmt: skip
"""What leaves each layer; tests/unit/test_split_models.py holds the model to it."""

RESNET18 = (
    3_211_264, 3_211_264, 3_211_264, 802_816, 802_816, 802_816, 401_408, 401_408, 200_704, 200_704,
    100_352, 100_352, 2_048, 4_000,
)  # fmt: skip

TABLE_5_3 = {
    0.05: 17, 0.1: 17, 0.5: 16, 1: 13, 2: 13, 3: 5, 5: 5, 10: 5, 15: 5,
}  # fmt: skip
"""Gbps to the thesis's split index: a layer counted from 0."""


def alexnet(**given):
    known = {
        "layer_bytes": ALEXNET,
        "input_bytes": FLOAT32,
        "stored_bytes": UINT8,
        "batch": 2000,
        "bandwidth_bps": 1e9,
        "freeze": 17,
    }
    return Situation(**{**known, **given})


def resnet18(**given):
    return alexnet(**{"layer_bytes": RESNET18, "freeze": 11, **given})


@pytest.mark.parametrize(("gbps", "theirs"), TABLE_5_3.items())
def test_the_adaptive_choice_is_that_of_table_5_3(gbps, theirs):
    """12 for its 13 and 16 for its 17: as many bytes, and less pushed down."""
    layer = choose(alexnet(bandwidth_bps=gbps * 1e9)).split - 1
    assert layer == {13: 12, 17: 16}.get(theirs, theirs)
    assert ALEXNET[layer] == ALEXNET[theirs]


@pytest.mark.parametrize(("gbps", "theirs"), TABLE_5_3.items())
def test_algorithm_2_as_printed_gives_the_table_too_but_for_the_early_layers(gbps, theirs):
    """Against a float32 input, layer 2 is a candidate: it wins where the link carries it."""
    layer = choose(alexnet(bandwidth_bps=gbps * 1e9), "thesis").split - 1
    carried = 2000 * ALEXNET[2] < gbps * 1e9 / 8
    assert layer == (2 if carried else {13: 12}.get(theirs, theirs))


def test_a_byte_in_float32_is_the_thesis_s_input_when_stored_so():
    for gbps in TABLE_5_3:
        given = alexnet(bandwidth_bps=gbps * 1e9, stored_bytes=FLOAT32)
        ours, theirs = choose(given), choose(given, "thesis")
        assert given.sample_bytes(ours.split) == given.sample_bytes(theirs.split)


@pytest.mark.parametrize("batch", [1000, 2000, 3000, 4000, 6000, 7000, 8000])
def test_what_travels_stays_flat_while_the_batch_grows(batch):
    """Figure 5.12 at 1 Gbps: never above what a second carries, where images would be."""
    plan = choose(alexnet(batch=batch))
    assert plan.bytes_per_iteration <= max(1e9 / 8, batch * 16_384)
    assert plan.bytes_per_iteration <= 140e6
    assert batch * UINT8 >= 150e6


def test_batches_of_3000_and_4000_choose_the_layers_that_the_thesis_tells():
    """13 at 3000 with 105.6 MB, 16 at 4000 with 62.6 MB (section 5.6.5)."""
    three, four = choose(alexnet(batch=3000)), choose(alexnet(batch=4000))
    assert (three.split - 1, four.split - 1) == (12, 16)
    assert three.bytes_per_iteration / 2**20 == pytest.approx(105.6, abs=0.2)
    assert four.bytes_per_iteration / 2**20 == pytest.approx(62.6, abs=0.2)


@pytest.mark.parametrize("planned", ["adaptive", "thesis"])
def test_resnet18_sends_six_times_less_than_floats(planned):
    given = resnet18(batch=1000, bandwidth_bps=150e6, stored_bytes=FLOAT32)
    assert FLOAT32 / given.sample_bytes(choose(given, planned).split) == 6.0


def test_alexnet_sends_nine_times_less_than_bytes():
    given = alexnet(batch=1000, bandwidth_bps=150e6)
    assert UINT8 / given.sample_bytes(choose(given).split) > 9


def test_nothing_is_pushed_down_for_jpeg_though_the_algorithm_as_printed_would():
    for case in (alexnet(stored_bytes=JPEG), resnet18(stored_bytes=JPEG)):
        ours, theirs = choose(case), choose(case, "thesis")
        assert (ours.split, ours.candidates, ours.pushes_down) == (0, (), False)
        assert theirs.split > 0
        assert theirs.bytes_per_iteration > ours.bytes_per_iteration
    assert choose(resnet18(stored_bytes=JPEG), "thesis").bytes_per_iteration > 6 * 2000 * JPEG


def test_a_layer_behind_the_pooling_is_smaller_than_any_jpeg():
    """EfficientNet-Lite0 frozen up to its pooling: 5 KB."""
    given = alexnet(layer_bytes=(62_720, 5_120, 40), freeze=1, stored_bytes=JPEG)
    assert choose(given).split == 2


def test_workers_share_the_link():
    assert choose(alexnet(batch=500, workers=4)) == choose(alexnet(batch=2000, workers=1))


def test_a_server_whose_queue_takes_longer_than_streaming_is_left_alone():
    streaming_s = 2000 * UINT8 / (1e9 / 8)
    free = ServerLoad(requests=1, workers=2, service_s=2 * streaming_s - 0.01)
    full = ServerLoad(requests=1, workers=2, service_s=2 * streaming_s + 0.01)
    assert choose(alexnet(load=free)).split == 13
    plan = choose(alexnet(load=full))
    assert plan.split == 0
    assert "queue" in plan.why


def test_load_is_what_servers_say():
    answer = {"load": {"waiting": 3, "running": 2, "workers": 4, "service_s": 2.0}}
    load = ServerLoad.from_status(answer, {})
    assert (load.requests, load.workers, load.service_s) == (5, 5, 2.0)
    assert load.wait_s == 2.0
    assert ServerLoad.from_status().slowdown == 1.0


def test_a_server_without_requests_does_not_make_those_of_another_shorter():
    """As many wait for 6 s each, whatever the free one beside them last took."""
    busy = {"load": {"waiting": 4, "running": 2, "workers": 2, "service_s": 6.0}}
    free = {"load": {"waiting": 0, "running": 0, "workers": 2, "service_s": 0.1}}
    assert ServerLoad.from_status(busy, free) == ServerLoad(6, 4, 6.0)
    assert ServerLoad.from_status(free).wait_s == 0.0


def test_load_differs_beyond_what_a_plan_would_not_feel():
    load = ServerLoad(requests=8, workers=4, service_s=1.0)
    assert not load.differs(load)
    assert not ServerLoad(9, 4, 1.0).differs(load)
    assert ServerLoad(4, 4, 1.0).differs(load)  # freer
    assert ServerLoad(8, 4, 2.0).differs(load)  # as many, but longer ones
    assert load.differs(ServerLoad())


situations = st.builds(
    lambda sizes, freeze, **given: Situation(
        layer_bytes=tuple(sizes), freeze=min(freeze, len(sizes) - 1), **given
    ),
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=12),
    freeze=st.integers(-1, 11),
    input_bytes=st.integers(1, 1000),
    stored_bytes=st.integers(1, 1000),
    batch=st.integers(1, 100),
    bandwidth_bps=st.floats(1, 1e6),
    workers=st.integers(1, 4),
    load=st.builds(ServerLoad, st.integers(0, 5), st.integers(1, 4), st.floats(0, 5)),
)
seconds = st.floats(0, 1)


@st.composite
def timed(draw):
    given = draw(situations)
    count = len(given.layer_bytes)
    times = st.lists(seconds, min_size=count, max_size=count).map(tuple)
    costs = draw(st.builds(Costs, times, times, seconds, seconds, seconds, st.floats(0, 1e-3)))
    return dataclasses.replace(given, costs=costs, iterations=draw(st.sampled_from([None, 1, 9])))


@given(situations, st.sampled_from(["thesis", "adaptive"]))
def test_no_split_lies_behind_the_frozen_layers(given, name):
    plan = choose(given, name)
    assert 0 <= plan.split <= given.freeze + 1
    assert plan.bytes_per_iteration == given.iteration_bytes(plan.split)
    assert plan.planner == name
    assert plan.why


@given(situations)
def test_adaptive_never_sends_more_than_streaming(given):
    plan = choose(given)
    assert plan.bytes_per_iteration <= given.iteration_bytes(0)
    assert plan.split == 0 or plan.split in plan.candidates == candidates(given)


@given(situations)
def test_adaptive_takes_the_earliest_that_a_second_carries_or_the_smallest(given):
    plan = choose(given)
    if plan.split:
        carried = [s for s in plan.candidates if given.iteration_bytes(s) < given.second_bytes]
        sizes = {given.sample_bytes(s) for s in plan.candidates}
        assert plan.split == carried[0] if carried else given.sample_bytes(plan.split) == min(sizes)


@given(timed())
def test_adaptive_is_never_predicted_to_be_slower_than_streaming(given):
    plan = choose(given)
    assert plan.predicted.iteration_s <= predict(given, 0).iteration_s
    blind = choose(dataclasses.replace(given, costs=None))
    if predict(given, blind.split).iteration_s <= predict(given, 0).iteration_s:
        assert given.sample_bytes(plan.split) >= given.sample_bytes(blind.split) or plan.split == 0
    else:
        assert plan.split != blind.split


def test_a_server_that_is_too_slow_for_few_bytes_is_given_less_to_do():
    """ResNet-18 stored as float32 at 150 Mbps, one core beside the store: 11.7 s against 9.7."""
    costs = Costs(server_forward_s=(0.0075,) * 14, client_forward_s=(0.006,) * 14, train_s=1e-4)
    slow = resnet18(stored_bytes=FLOAT32, batch=128, bandwidth_bps=150e6, costs=costs)
    plan = choose(slow)
    assert choose(dataclasses.replace(slow, costs=None)).split == 11
    assert plan.split == 9
    assert plan.predicted.iteration_s <= predict(slow, 0).iteration_s


@given(timed())
def test_predictive_is_the_best_of_all_it_can_predict(given):
    plan = choose(given, "predictive")
    best = min(predict(given, split).iteration_s for split in range(given.max_split + 1))
    assert plan.predicted.iteration_s <= 1.01 * best
    for earlier in range(plan.split):
        assert predict(given, earlier).iteration_s > 1.01 * best


@given(timed(), st.integers(0, 12))
def test_an_iteration_takes_at_least_its_slowest_part_and_at_most_all_of_them(given, split):
    found = predict(given, min(split, given.max_split))
    parts = (found.server_s, found.link_s, found.client_s)
    assert max(parts) <= found.iteration_s <= sum(parts) * (1 + 1e-9)
    assert getattr(found, f"{found.bound_by}_s") == max(parts)


def costly(**given):
    """AlexNet's layers at 58 images a second, the client as fast as the server."""
    share = 1 / 58 / len(ALEXNET)
    costs = Costs((share,) * len(ALEXNET), (share,) * len(ALEXNET), train_s=0.004)
    return alexnet(batch=200, costs=costs, **given)


def test_predictive_balances_both_sides_when_the_link_does_not_matter():
    plan = choose(costly(bandwidth_bps=1e12), "predictive")
    assert plan.predicted.server_s == pytest.approx(plan.predicted.client_s, rel=0.35)
    assert plan.predicted.iteration_s < predict(costly(bandwidth_bps=1e12), 0).iteration_s


def test_predictive_moves_work_away_from_a_busy_server():
    alone = choose(costly(bandwidth_bps=1e12), "predictive").split
    busy = costly(bandwidth_bps=1e12, load=ServerLoad(requests=9, workers=1))
    assert choose(busy, "predictive").split < alone


def test_predictive_pushes_down_when_the_link_is_slow():
    assert choose(costly(bandwidth_bps=5e6), "predictive").split >= 17


def test_float16_halves_what_travels():
    given = alexnet(feature_bytes=0.5)
    assert given.sample_bytes(6) == ALEXNET[5] / 2
    assert given.sample_bytes(0) == UINT8
    assert len(candidates(given)) > len(candidates(alexnet()))


def test_a_split_crosses_from_the_link_to_computing_where_both_take_as_long():
    given = costly()
    for split in (0, 6, 18):
        at = dataclasses.replace(given, bandwidth_bps=crossing_bps(given, split))
        found = predict(at, split)
        assert found.link_s == pytest.approx(max(found.server_s, found.client_s))


def test_cuts_that_no_run_could_tell_apart_are_timed_once():
    times = [0.0 if at in (1, 4, 7) else 1.0 for at in range(len(ALEXNET))]
    costs = Costs(tuple(times), tuple(times), 1.0)
    cuts = distinct_cuts(alexnet(costs=costs))
    assert cuts == [0, 1, 3, 4, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]
    with pytest.raises(ConfigError):
        distinct_cuts(alexnet())


def test_profiles_become_situations_and_costs():
    layers = tuple(
        LayerProfile(str(at), (size // 4,), size, 0.1) for at, size in enumerate((40, 8))
    )
    profile = ModelProfile("mine", (3, 2, 2), layers, batch=4, train_s=0.5, freeze=0)
    given = situation_of(
        profile, stored_bytes=50, batch=2, bandwidth_bps=8e3, freeze=0, costs=Costs.of(profile)
    )
    assert given.layer_bytes == (40, 8)
    assert given.input_bytes == 48
    assert choose(given, "predictive").predicted.client_s == pytest.approx(1.0)
    untimed = dataclasses.replace(profile, train_s=None)
    with pytest.raises(ConfigError, match="has not been measured"):
        Costs.of(untimed)


@pytest.mark.parametrize(
    "wrong",
    [
        {"freeze": 22},
        {"freeze": -2},
        {"batch": 0},
        {"bandwidth_bps": 0},
        {"bandwidth_bps": math.inf},
        {"bandwidth_bps": math.nan},
        {"stored_bytes": -1},
        {"workers": 0},
        {"costs": Costs((1.0,), (1.0,), 1.0)},
    ],
)
def test_situations_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError):
        alexnet(**wrong)


def test_time_is_not_predicted_from_nothing():
    with pytest.raises(ConfigError, match="none were measured"):
        choose(alexnet(), "predictive")
    assert choose(alexnet()).predicted is None


def test_a_planner_of_your_own_is_one_function():
    @planner("all-of-it")
    def all_of_it(situation):
        return situation.max_split, "because"

    try:
        plan = choose(alexnet(), "all-of-it")
        assert isinstance(plan, Plan)
        assert (plan.split, plan.why) == (18, "because")
    finally:
        PLANNERS.remove("all-of-it")
    with pytest.raises(UnknownName, match="Did you mean adaptive"):
        choose(alexnet(), "adaptiv")
