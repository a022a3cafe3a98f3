"""Batch adaptation (equation 5.1): memory is filled, never exceeded, and nobody starves."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from garfield.core.errors import ConfigError
from garfield.split.scheduler import Batching, Device, Request, assign, plan_at

requests = st.builds(
    Request,
    id=st.just(""),
    base_bytes=st.integers(0, 300),
    per_sample_bytes=st.integers(1, 40),
    b_max=st.integers(1, 60),
    overtaken=st.integers(0, 3),
)
queues = st.lists(requests, max_size=12).map(
    lambda found: [
        Request(str(at), each.base_bytes, each.per_sample_bytes, each.b_max, each.overtaken)
        for at, each in enumerate(found)
    ]
)
devices = st.lists(
    st.tuples(st.integers(0, 6000), st.integers(0, 2000), st.integers(0, 3), st.integers(0, 12)),
    min_size=1,
    max_size=3,
).map(
    lambda found: [
        Device(f"cpu{at}", budget, occupied, running, slots)
        for at, (budget, occupied, running, slots) in enumerate(found)
    ]
)
batchings = st.builds(
    Batching, b_min=st.integers(1, 30), adapt=st.just(True), max_overtaken=st.integers(0, 4)
)


def by_id(queue):
    return {each.id: each for each in queue}


def on(plan, device):
    return [each for each in plan.admitted if each.device == device.name]


@given(queues, devices, batchings)
def test_every_request_is_admitted_waits_or_is_impossible(queue, machines, batching):
    plan = assign(queue, machines, batching)
    told = [each.id for each in plan.admitted] + [each.id for each in plan.waiting]
    assert sorted(told + list(plan.impossible)) == sorted(each.id for each in queue)
    order = [each.id for each in queue]
    for part in (plan.admitted, plan.waiting):
        assert [each.id for each in part] == [one for one in order if one in by_id(part)]


@given(queues, devices, batchings)
def test_no_budget_is_exceeded_and_no_bound_broken(queue, machines, batching):
    plan = assign(queue, machines, batching)
    known = by_id(queue)
    for device in machines:
        here = on(plan, device)
        assert sum(each.reserved_bytes for each in here) <= device.free_bytes
        assert len(here) <= device.free_slots
    for each in plan.admitted:
        request = known[each.id]
        assert min(batching.b_min, request.b_max) <= each.batch <= request.b_max
        assert each.reserved_bytes == request.needs(each.batch)


@given(queues, devices, batchings)
def test_less_than_one_sample_is_left_unless_all_have_all(queue, machines, batching):
    plan = assign(queue, machines, batching)
    known = by_id(queue)
    for device in machines:
        here = on(plan, device)
        left = device.free_bytes - sum(each.reserved_bytes for each in here)
        growing = [known[each.id] for each in here if each.batch < known[each.id].b_max]
        assert all(left < request.per_sample_bytes for request in growing)


@given(queues, devices, batchings)
def test_the_rest_is_shared_evenly(queue, machines, batching):
    """No batch that could grow is below a level that memory would have given to all."""
    plan = assign(queue, machines, batching)
    known = by_id(queue)
    for device in machines:
        here = on(plan, device)
        growing = [each.batch for each in here if each.batch < known[each.id].b_max]
        if growing:
            higher = min(growing) + 1
            raised = (
                max(min(batching.b_min, request.b_max), min(higher, request.b_max))
                for request in (known[each.id] for each in here)
            )
            needed = sum(known[one.id].needs(b) for one, b in zip(here, raised, strict=True))
            assert needed > device.free_bytes


@pytest.mark.slow
@given(queues, devices, batchings)
def test_alike_requests_get_batches_that_differ_by_one_at_most(queue, machines, batching):
    alike = [Request(each.id, 50, 7, 60) for each in queue]
    plan = assign(alike, machines, batching)
    for device in machines:
        found = [each.batch for each in on(plan, device)]
        assert not found or max(found) - min(found) <= 1


@given(queues, devices, batchings)
def test_first_come_first_served(queue, machines, batching):
    """Who waits did not fit when its turn came, or is behind one that may not be overtaken."""
    plan = assign(queue, machines, batching)
    admitted, waiting = by_id(plan.admitted), by_id(plan.waiting)
    free = {device.name: device.free_bytes for device in machines}
    slots = {device.name: device.free_slots for device in machines}
    behind = []
    for request in queue:
        start = min(batching.b_min, request.b_max)
        if request.id in admitted:
            name = admitted[request.id].device
            assert request.needs(start) <= free[name]
            free[name] -= request.needs(start)
            slots[name] -= 1
            behind = [count + 1 for count in behind]
        elif request.id in waiting:
            fits = any(request.needs(start) <= free[name] and slots[name] for name in free)
            assert not fits or any(count >= batching.max_overtaken for count in behind)
            behind.append(request.overtaken)


@given(queues, devices, batchings)
def test_nobody_is_overtaken_more_often_than_allowed(queue, machines, batching):
    fresh = [Request(each.id, each.base_bytes, each.per_sample_bytes, each.b_max) for each in queue]
    waiting = assign(fresh, machines, batching).waiting
    for turn in range(4):  # later requests keep coming
        assert all(each.overtaken <= batching.max_overtaken for each in waiting)
        newer = [Request(f"{turn}-{at}", 0, 1, 1) for at in range(3)]
        plan = assign([*waiting, *newer], machines, batching)
        started = {each.id for each in plan.admitted}
        for each in plan.waiting:
            old = next((one for one in waiting if one.id == each.id), None)
            if old is not None:
                passed = [one for one in waiting if one.id in started] + [
                    one for one in newer if one.id in started
                ]
                later = [
                    one for one in passed if one in newer or waiting.index(one) > waiting.index(old)
                ]
                assert each.overtaken == old.overtaken + len(later)
        waiting = [each for each in plan.waiting if each.id in by_id(fresh)]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(1, 6)), max_size=4),
    st.integers(0, 150),
)
def test_memory_is_used_as_well_as_trying_all_batches_would_but_for_one_sample(found, budget):
    queue = [Request(str(at), *each) for at, each in enumerate(found)]
    batching = Batching(b_min=2)
    plan = assign(queue, [Device("cpu", budget)], batching)
    here = [each for each in queue if each.id in by_id(plan.admitted)]
    ranges = [range(min(2, each.b_max), each.b_max + 1) for each in here]
    used = [
        sum(each.needs(b) for each, b in zip(here, batches, strict=True))
        for batches in itertools.product(*ranges)
    ]
    best = max(each for each in used if each <= budget)
    got = sum(each.reserved_bytes for each in plan.admitted)
    assert best - max((each.per_sample_bytes for each in here), default=1) < got <= best


@settings(max_examples=60)
@given(st.lists(st.integers(1, 60), max_size=6), st.integers(0, 150))
def test_all_are_admitted_whenever_all_fit(bases, budget):
    queue = [Request(str(at), base, 1, 10) for at, base in enumerate(bases)]
    plan = assign(queue, [Device("cpu", budget)], Batching(b_min=5))
    if sum(bases) + 5 * len(bases) <= budget:
        assert len(plan.admitted) == len(queue)


@given(st.integers(0, 20), st.integers(0, 4), st.integers(0, 4))
def test_requests_are_spread_evenly_over_devices(count, running_a, running_b):
    queue = [Request(str(at), 10, 1, 10) for at in range(count)]
    machines = [Device("a", 10**6, 0, running_a), Device("b", 10**6, 0, running_b)]
    plan = assign(queue, machines, Batching(b_min=5))
    a, b = running_a + len(on(plan, machines[0])), running_b + len(on(plan, machines[1]))
    assert len(plan.admitted) == count
    assert abs(a - b) <= max(1, abs(running_a - running_b) - count)


def test_one_budget_per_device_is_filled_by_itself():
    queue = [Request(str(at), 100, 10, 1000) for at in range(4)]
    plan = assign(queue, [Device("a", 2_000), Device("b", 5_000, 1_000)], Batching(b_min=25))
    assert [(each.device, each.batch) for each in plan.admitted] == [
        ("b", 190),  # the emptier one first, of two that run nothing
        ("a", 90),
        ("b", 190),
        ("a", 90),
    ]


def test_idle_workers_take_memory_that_is_never_freed():
    request = Request("r", 0, 10, 100)
    full = Device("a", 1_000, occupied_bytes=900, idle_bytes=300)
    assert assign([request], [full], Batching(b_min=70)).waiting == (request,)
    assert assign([request], [full], Batching(b_min=71)).impossible == ("r",)


def test_ten_tenants_in_memory_for_six():
    """Six run at b_min and fill the budget; four wait, and are overtaken by nobody."""
    queue = [Request(str(at), 100, 4, 1000) for at in range(10)]
    plan = assign(queue, [Device("cpu", 6 * 200 + 150)], Batching())
    assert len(plan.admitted) == 6
    assert sum(each.reserved_bytes for each in plan.admitted) > 6 * 200 + 150 - 4
    assert [each.id for each in plan.waiting] == ["6", "7", "8", "9"]
    assert all(each.overtaken == 0 for each in plan.waiting)


def test_a_small_request_overtakes_a_large_one_but_not_for_ever():
    large, batching = Request("large", 800, 1, 25), Batching(max_overtaken=2)
    device = Device("cpu", 1_000, occupied_bytes=500)
    queue = [large, *(Request(str(at), 10, 1, 25) for at in range(5))]
    plan = assign(queue, [device], batching)
    assert [each.id for each in plan.admitted] == ["0", "1"]
    assert plan.waiting[0].overtaken == 2
    assert [each.overtaken for each in plan.waiting[1:]] == [0, 0, 0]
    later = assign([*plan.waiting, Request("new", 1, 1, 1)], [device], batching)
    assert not later.admitted  # though all but the large one would fit


def test_without_adaptation_the_batch_is_200():
    queue = [Request("a", 0, 1, 1000), Request("b", 0, 1, 150), Request("c", 0, 1, 1000)]
    plan = assign(queue, [Device("cpu", 450)], Batching(adapt=False))
    assert [(each.id, each.batch) for each in plan.admitted] == [("a", 200), ("b", 150)]
    assert [each.id for each in plan.waiting] == ["c"]


def test_nothing_comes_of_nothing():
    assert assign([], []) == assign([], [Device("cpu", 10)])
    assert assign([Request("r", 1, 1, 1)], []).impossible == ("r",)


@pytest.mark.parametrize(
    "wrong", [{"base_bytes": -1}, {"per_sample_bytes": 0}, {"b_max": 0}, {"overtaken": -1}]
)
def test_numbers_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match="Request r must have"):
        Request(**{"id": "r", "base_bytes": 1, "per_sample_bytes": 1, "b_max": 1, **wrong})


def test_planning_waits_a_window_for_more_requests_and_not_for_freed_memory():
    batching = Batching(window_fraction=0.1)

    def at(**given):
        return plan_at(
            **{"now_s": 10.0, "first_new_s": None, "freed_s": None, "service_s": 2.0, **given},
            batching=batching,
        )

    assert at() is None  # nothing new, nothing freed
    assert at(first_new_s=10.0) == pytest.approx(10.2)
    assert at(first_new_s=9.0) == 10.0  # the window is over
    assert at(freed_s=10.0, first_new_s=10.0) == 10.0
    assert at(first_new_s=10.0, service_s=0.0) == 10.0
