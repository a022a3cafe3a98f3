"""Workers that end in the middle of things, and jobs that nobody controls."""

import os
import signal

import pytest

from garfield.elastic.job.coordination import BatchSize
from tests.elastic_job_cluster import (
    Cluster,
    assert_each_sample_once,
    assert_same_parameters,
)
from tests.elastic_job_worker import digits, reference, seed_of
from tests.marks import heavy_but

pytestmark = pytest.mark.slow
SAMPLES = len(digits())
STEP = {"options": {"fixed_step": 24, "batch": 8, "collective_timeout_s": 120.0}}


@pytest.mark.parametrize("rate", heavy_but(["linear", "adascale"], "linear"))
def test_survivors_of_a_kill_in_mid_collective_wait_for_a_controller_and_go_on(tmp_path, rate):
    # AdaScale measures gradients in the exchange itself, and changes no rate while a step is fixed
    options = {**STEP["options"], "learning_rate": rate}
    with Cluster(tmp_path, options=options) as cluster:
        cluster.propose("w0", "w1", "w2")
        cluster.start("w0", faults=[{"step": 9, "fault": "SIGKILL"}])
        cluster.start("w1", "w2", until={"generation": 2, "more": 90})
        assert cluster.ended("w0") == [-signal.SIGKILL]
        cluster.wait_for_state("w1", "waiting")
        cluster.wait_for_state("w2", "waiting")
        # nobody proposes them without w0: they wait, however long it takes
        cluster.wait(lambda: cluster.agreed.read().generation.number == 2, "a try with w0")
        assert cluster.agreed.read().generation.members == ("w0", "w1", "w2")
        assert [cluster.workers[name].exit_code for name in ("w1", "w2")] == [None, None]
        cluster.propose("w1", "w2")
        assert cluster.ended("w1", "w2") == [0, 0]
        used, steps = cluster.lineage(["w1", "w2"])
        assert steps > 90
        assert_each_sample_once(used, SAMPLES)
        assert_same_parameters(cluster.final(), reference(steps, 24, seed_of("w0")))


def test_sigterm_leaves_in_order_without_a_controller_and_the_last_one_saves(tmp_path):
    kept = {"checkpoint_dir": str(tmp_path / "checkpoints")}
    with Cluster(tmp_path, options={**STEP["options"], **kept}) as cluster:
        cluster.propose("w0", "w1")
        cluster.start("w0", "w1")
        cluster.wait_for_steps("w1", 5)
        cluster.workers["w0"].signal(signal.SIGTERM)
        assert cluster.ended("w0") == [0]
        cluster.wait_for_steps("w1", 5, workers=1)
        assert cluster.agreed.read().checkpoint is None  # it was handed over in memory
        cluster.workers["w1"].signal(signal.SIGTERM)
        assert cluster.ended("w1") == [0]
        last = cluster.applied("w1")[-1]["applied"]
        assert cluster.agreed.read().checkpoint.step == last
        generation = cluster.propose("w2")
        cluster.start("w2", until={"generation": generation, "more": 80})
        assert cluster.ended("w2") == [0]
        assert cluster.applied("w2")[0]["step"] == last
        used, steps = cluster.lineage(["w0", "w1", "w2"])
        assert_each_sample_once(used, SAMPLES)
        assert_same_parameters(cluster.final(), reference(steps, 24, seed_of("w0")))


def test_a_batch_size_changes_at_the_same_step_everywhere(tmp_path):
    options = {"batch": 8, "collective_timeout_s": 120.0}
    with Cluster(tmp_path, options=options, until={"generation": 2, "more": 300}) as cluster:
        cluster.propose("w0", "w1")
        cluster.start("w0", "w1")
        cluster.wait_for_steps("w0", 5)
        cluster.agreed.set_batch(BatchSize(16, 1_000))
        cluster.agreed.set_batch(BatchSize(20, 2_000))
        cluster.wait(lambda: _sizes(cluster, "w1")[-1][1] == 20, "a batch of 20")
        cluster.propose("w1")
        assert cluster.ended("w0", "w1") == [0, 0]
        until = len(_sizes(cluster, "w0")) - 1
        assert _sizes(cluster, "w0")[:until] == _sizes(cluster, "w1")[:until]
        used, _ = cluster.lineage(["w0", "w1"])
        assert_each_sample_once(used, SAMPLES)


@pytest.mark.heavy
def test_a_batch_too_large_for_one_worker_is_halved_for_all_and_remembered(tmp_path):
    options = {"batch": 64, "collective_timeout_s": 120.0}
    until = {"generation": 2, "more": 30}
    with Cluster(tmp_path, options=options, until=until) as cluster:
        cluster.propose("w0", "w1")
        cluster.start("w0")
        cluster.start("w1", memory_mb=300, held_per_sample=2 * 2**20)  # 8 MB a sample
        assert cluster.ended("w0", "w1") == [0, 0]
        assert cluster.agreed.read().generation.members == ("w0", "w1")
        assert cluster.agreed.read().batch.allowed == cluster.agreed.read().batch.most == 32
        for member in ("w0", "w1"):
            assert [line["step"] for line in cluster.applied(member)[:2]] == [0, 1]
            assert _sizes(cluster, member)[:2] == [(0, 64), (0, 32)]
        assert_each_sample_once(cluster.lineage(["w0", "w1"])[0], SAMPLES)


def _sizes(cluster, member):
    """(step, samples) of every batch but the last one of an epoch, which takes what is left."""
    drawn = [line for line in cluster.record(member) if "drawn" in line]
    return [(line["step"], line["batch"]) for line in drawn] or [(0, 0)]


@pytest.mark.heavy
def test_a_worker_that_hangs_is_left_behind_and_leaves_when_it_wakes(tmp_path):
    options = {**STEP["options"], "collective_timeout_s": 2.0}
    with Cluster(tmp_path, options=options, until={"generation": 3, "more": 60}) as cluster:
        cluster.propose("w0", "w1", "w2")
        cluster.start("w0", "w1", "w2")
        cluster.wait_for_steps("w0", 5)
        cluster.workers["w1"].signal(signal.SIGSTOP)
        cluster.wait_for_state("w0", "waiting")
        cluster.wait(lambda: cluster.agreed.read().generation.number == 2, "a try with w1")
        cluster.propose("w0", "w2")
        assert cluster.ended("w0", "w2") == [0, 0]
        cluster.workers["w1"].signal(signal.SIGCONT)
        assert cluster.ended("w1") == [0]
        assert cluster.record("w1")[-1]["end"] == "left"
        used, steps = cluster.lineage(["w0", "w2"])
        assert_each_sample_once(used, SAMPLES)
        assert_same_parameters(cluster.final(), reference(steps, 24, seed_of("w0")))


@pytest.mark.heavy
def test_many_rescalings_and_kills_use_every_sample_once(tmp_path):
    names = [f"w{number}" for number in range(8)]
    last = {"generation": 10**6, "more": 0}
    with Cluster(tmp_path, **STEP, until=last) as cluster:
        there = names[:2]
        cluster.propose(*there)
        cluster.start(*there)
        for number, name in enumerate(names[2:]):
            cluster.wait_for_steps(there[-1], 5)
            there.append(name)
            cluster.propose(*there)
            cluster.start(name)
            cluster.wait_for_steps(name, 3)
            gone = there.pop(number % 2)
            if number % 3 == 0:
                os.kill(cluster.workers[gone].pid, signal.SIGKILL)
                cluster.ended(gone)
            cluster.propose(*there)
            cluster.wait_for_steps(there[0], 3, workers=len(there))
        for name in there:
            cluster.workers[name].signal(signal.SIGTERM)
        assert cluster.ended(*there) == [0] * len(there)
        used, _ = cluster.lineage(names)
        assert_each_sample_once(used, SAMPLES)
