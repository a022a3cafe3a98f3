"""What a model costs: sizes, times, and memory that is predicted from two batch sizes."""

import multiprocessing
import os
from itertools import count

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from garfield.core.errors import ConfigError
from garfield.split.live_tensors import LiveTensors
from garfield.split.models import empty_prefix, load
from garfield.split.models.cutting import LayeredModel, layer
from garfield.split.profile import (
    PROFILE_BATCHES,
    MemoryModel,
    ModelProfile,
    ProfileCache,
    profile_key,
    profile_sizes,
    profile_times,
    tensor_bytes_per_sample,
)

MIB = 1 << 20

MEASURED = {  # MiB above an idle worker, by batch: one core, forked, heap returned at once
    "alexnet 6": {8: 36.2, 16: 51.0, 25: 67.6, 32: 80.8, 50: 114.8, 100: 209.1, 200: 397.7},
    "alexnet 18": {8: 36.2, 16: 51.0, 25: 67.6, 32: 80.8, 50: 114.8, 100: 209.1, 200: 397.8},
    "resnet18 12": {8: 74.9, 16: 128.5, 25: 188.7, 32: 235.7, 64: 449.9, 128: 878.8, 200: 1361.1},
    "resnet18 8": {8: 74.8, 12: 101.6, 16: 128.4, 32: 235.6},
    "efficientnet_lite0 23": {8: 118.3, 12: 165.4, 16: 211.2, 32: 399.3},
    "densenet121 21": {8: 90.1, 12: 122.9, 16: 154.9, 32: 286.7},
    "vgg11 26": {8: 197.6, 16: 373.7, 32: 725.8, 64: 1430.2},
}


def small():
    layers = [
        layer("conv", nn.Conv2d(3, 8, 3)),
        layer("norm", nn.BatchNorm2d(8)),
        layer("relu", nn.ReLU(inplace=True)),
        layer("flatten", nn.Flatten()),
        layer("head", nn.Linear(8 * 36, 2)),
    ]
    return LayeredModel("small", layers, freeze=2, input_shape=(3, 8, 8))


@pytest.mark.parametrize("name", MEASURED)
def test_memory_is_never_predicted_below_what_was_measured_nor_a_tenth_above(name):
    peaks = {batch: int(mib * MIB) for batch, mib in MEASURED[name].items()}
    fitted = MemoryModel.fit([(batch, peaks[batch]) for batch in PROFILE_BATCHES])
    for batch, peak in peaks.items():
        assert peak <= fitted.predict(batch) <= 1.1 * peak, batch


@given(st.integers(0, 10**9), st.integers(1, 10**8), st.integers(1, 2000))
def test_any_line_is_predicted_just_above(base, slope, batch):
    fitted = MemoryModel.fit([(b, base + b * slope) for b in PROFILE_BATCHES])
    truth = base + max(batch, PROFILE_BATCHES[0]) * slope
    assert truth <= fitted.predict(batch) <= 1.04 * truth + 2 * MIB + 1 + batch + 8


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 10**9)), min_size=2, max_size=5))
def test_no_point_that_was_measured_lies_above(points):
    if len({batch for batch, _ in points}) < 2:
        with pytest.raises(ConfigError, match="two batch sizes"):
            MemoryModel.fit(points)
        return
    fitted = MemoryModel.fit(points)
    assert all(fitted.predict(batch) >= peak for batch, peak in points)


def test_noise_between_small_batches_is_not_taken_for_a_slope():
    """Peaks of a line, but for 3 MiB too many at 32: a tenth too much at 120."""
    peaks = [(8, 12 * MIB), (32, (12 + 24 * 1.23 + 3) * MIB), (128, (12 + 120 * 1.23) * MIB)]
    truth = (12 + 112 * 1.23) * MIB
    assert truth <= MemoryModel.fit(peaks).predict(120) <= 1.05 * truth
    assert MemoryModel.fit(peaks[:2]).predict(120) > 1.08 * truth  # what it would have been


def test_noise_before_the_largest_batch_does_not_swallow_the_slope():
    """Peaks of a training as they were measured once: each sample takes 64 KiB."""
    peaks = [(8, 134144 << 10), (32, 137960 << 10), (128, 138000 << 10)]
    fitted = MemoryModel.fit(peaks)
    assert fitted.per_sample_bytes > 32 << 10
    assert all(peak <= fitted.predict(batch) <= 1.05 * peak for batch, peak in peaks)


def test_small_batches_are_predicted_as_the_smallest_that_was_measured():
    fitted = MemoryModel.fit([(8, 80 * MIB), (32, 320 * MIB)])
    assert fitted.predict(1) == fitted.predict(8) < fitted.predict(9)


def _peak_growth(name, split, batches, sent):
    """In a process of its own: the growth of its peak with each batch."""
    from garfield.split.server.worker_process import steady_heap

    torch.set_num_threads(1)
    steady_heap()
    prefix = load(name).prefix(split)
    found = []
    with torch.inference_mode():
        prefix(torch.zeros(1, 3, 224, 224))
        for batch in batches:
            with open("/proc/self/clear_refs", "w") as clear:
                clear.write("5")
            before = _status("VmRSS")
            images = torch.zeros(batch, 3, 224, 224).add_(1)
            prefix(images)
            found.append(_status("VmHWM") - before)
            del images
    sent.send(found)


def _status(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


@pytest.mark.heavy
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="no peaks to be had")
@pytest.mark.parametrize(("name", "split"), [("alexnet", 6), ("resnet18", 12)])
def test_peaks_of_a_real_process_are_predicted_from_two_of_them(name, split):
    others = (16, 25, 50)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_peak_growth, args=(name, split, (*PROFILE_BATCHES, *others), theirs)
    )
    process.start()
    assert ours.poll(240)
    first, second, *peaks = ours.recv()
    process.join()
    fitted = MemoryModel.fit([(PROFILE_BATCHES[0], first), (PROFILE_BATCHES[1], second)])
    for batch, peak in zip(others, peaks, strict=True):
        assert peak <= fitted.predict(batch) <= 1.1 * peak, batch


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "split", "mib"), [("alexnet", 18, 1.887), ("resnet18", 12, 6.699)]
)
def test_tensors_counted_without_computing_are_what_a_sample_takes(name, split, mib):
    counted = tensor_bytes_per_sample(empty_prefix(name, split), (3, 224, 224))
    assert counted == pytest.approx(mib * MIB, rel=0.03)


def test_tensors_alive_are_counted_until_they_are_let_go_of():
    with LiveTensors() as live:
        first = torch.zeros(1000)
        second = first + 1
        del first
        third = second.view(10, 100)  # no memory of its own
        del second
        fourth = third * 2
    assert live.peak_bytes == 8000
    assert live.live_bytes == 8000
    del third, fourth


def test_sizes_come_from_one_sample():
    profile = profile_sizes(small())
    assert [each.name for each in profile.layers] == ["conv", "norm", "relu", "flatten", "head"]
    assert [each.output_bytes for each in profile.layers] == [1152, 1152, 1152, 1152, 8]
    assert profile.layers[0].weights_bytes == 4 * (8 * 27 + 8)
    assert profile.layers[0].memory_bytes >= 1152 + 4 * 3 * 64
    assert profile.train_s is None
    with pytest.raises(ConfigError, match="not been measured"):
        _ = profile.forward_s


def test_times_are_of_one_sample_and_the_fastest_pass_counts():
    ticks = count()
    model = small()
    before = {key: value.clone() for key, value in model.module.state_dict().items()}
    profile = profile_times(model, batch=4, repeats=2, clock=lambda: float(next(ticks)))
    assert profile.forward_s == (0.25,) * 5  # one tick of four samples each
    assert (profile.train_s, profile.step_s) == (0.0, 1.0)  # a tick, whatever the batch
    assert (profile.batch, profile.freeze) == (4, 2)
    after = model.module.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    with pytest.raises(ConfigError, match="at least 1"):
        profile_times(model, batch=0)


def test_profiles_are_kept_by_what_they_depend_on(tmp_path):
    cache, made = ProfileCache(tmp_path / "profiles"), []

    def make():
        made.append(1)
        return profile_sizes(small())

    key = profile_key(small(), "client", 4)
    first, again = cache.get_or_make(key, make), cache.get_or_make(key, make)
    assert first == again
    assert len(made) == 1
    assert profile_key(small(), "server", 4) != key
    assert profile_key(small(), "client", 4) == key
    (tmp_path / "profiles" / f"{key}.json").write_text('{"layers": 5}')  # of an older version
    assert cache.get(key) is None
    assert cache.get_or_make(key, make) == first


def test_times_of_another_processor_or_of_more_threads_are_others(monkeypatch):
    """What is kept may be found by another machine: a home is shared, a virtual one moves."""
    here = profile_key(small(), "client")
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    more_threads = profile_key(small(), "client")
    torch.set_num_threads(threads)
    assert profile_key(small(), "client") == here
    monkeypatch.setattr("garfield.report.machine._cpuinfo", lambda field: "another")
    elsewhere = profile_key(small(), "client")
    assert len({here, more_threads, elsewhere}) == 3


@pytest.mark.parametrize("found", [None, [], {}, {"layers": [{}]}, {"layers": 3}])
def test_what_is_no_profile_is_refused(found):
    with pytest.raises(ConfigError, match="no profile"):
        ModelProfile.from_json(found)
