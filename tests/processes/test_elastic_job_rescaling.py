"""Workers that come and go, as real processes: no step and no sample is lost, none comes twice."""

import pytest

from tests.elastic_job_cluster import (
    Cluster,
    assert_each_sample_once,
    assert_same_parameters,
)
from tests.elastic_job_worker import digits, reference, seed_of

pytestmark = pytest.mark.slow
SAMPLES = len(digits())
STEP = {"options": {"fixed_step": 24, "batch": 8, "collective_timeout_s": 120.0}}


def test_growing_and_shrinking_change_nothing_but_the_workers(tmp_path):
    with Cluster(tmp_path, **STEP, until={"generation": 3, "more": 60}) as cluster:
        cluster.propose("w0")
        cluster.start("w0")
        cluster.wait_for_steps("w0", 5)
        cluster.propose("w0", "w1", "w2")
        cluster.wait_for_steps("w0", 5, generation=1)  # nobody waits for who is not there yet
        cluster.start("w1", "w2")
        cluster.wait_for_steps("w2", 5, workers=3)
        cluster.propose("w2")  # the first member leaves, who hosts the store
        assert cluster.ended("w0", "w1", "w2") == [0, 0, 0]
        assert cluster.record("w0")[-1]["end"] == "left"
        assert cluster.record("w2")[-1]["end"] == "finished"
        for name in ("w0", "w1", "w2"):  # a thread that outlives its group may abort the process
            assert not [each for each in cluster.record(name)[-1]["threads"] if "gloo" in each]
        assert cluster.agreed.read().finished
        used, steps = cluster.lineage(["w0", "w1", "w2"])
        assert_each_sample_once(used, SAMPLES)
        assert_same_parameters(cluster.final(), reference(steps, 24, seed_of("w0")))
        assert {line["workers"] for line in cluster.applied("w0")} == {1, 3}
