"""Real trainings on a local cluster: scaled, adopted, hit, and every sample used once."""

import json
import os
import signal
from collections import defaultdict

import pytest

from tests.elastic_job_cluster import assert_each_sample_once
from tests.elastic_job_worker import digits
from tests.elastic_local_cluster import LIGHT, LocalCluster
from tests.elastic_local_script import HURRY

pytestmark = pytest.mark.heavy
SCRIPT = LIGHT.with_name("elastic_local_script.py")


def submit(cluster, tmp_path, name, epochs, *, slow=False, **request):
    records = tmp_path / f"records-{name}"
    records.mkdir()
    if not slow:
        (records / HURRY).touch()
    cluster.submit(name, records, epochs, script=SCRIPT, batch=32, scale_batch=False, **request)
    return records


def lines_of(path):
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def used_samples(records):
    """Samples that went into the model: {epoch: [index, ...]}, by those who came to the end."""
    told = {path.stem: lines_of(path) for path in records.glob("*.jsonl")}
    applied = {}
    for lines in told.values():
        for line in lines:
            if "applied" in line:
                step, generation = line["step"], line["generation"]
                applied[step] = max(generation, applied.get(step, 0))
    assert sorted(applied) == list(range(len(applied))), "a step is missing"
    used = defaultdict(list)
    for lines in told.values():
        for line in lines:
            if "drawn" in line and applied.get(line["step"]) == line["generation"]:
                used[line["epoch"]] += line["drawn"]
    assert any(
        "end" in line and line["end"] == "finished" for each in told.values() for line in each
    )
    return used


def assert_whole(records, epochs):
    used = used_samples(records)
    assert sorted(used) == list(range(epochs))
    assert_each_sample_once({**used, epochs: []}, len(digits()))


def test_a_job_trains_on_its_slots_and_finishes(tmp_path):
    with LocalCluster(tmp_path, slots=2) as cluster:
        records = submit(cluster, tmp_path, "digits", 3, max_workers=2)
        cluster.wait_for("digits", phase="finished")
        assert cluster.job("digits").step > 0
        assert_whole(records, 3)


def test_jobs_are_scaled_while_they_train_also_by_a_daemon_that_came_back(tmp_path):
    with LocalCluster(tmp_path, slots=3) as cluster:
        first = submit(cluster, tmp_path, "first", 40, slow=True, max_workers=3)
        cluster.wait_for("first", workers=3, processes=3)
        cluster.wait_for_steps("first", 20)
        second = submit(cluster, tmp_path, "second", 4, max_workers=3, start_workers=3)
        cluster.wait_for("second", phase="running")
        cluster.wait_for_steps("second", 5)
        workers = cluster.workers(0)
        cluster.kill_daemon()
        cluster.wait_for_steps("first", 20)
        cluster.up()
        # second may have ended meanwhile, so that first grows again at once: by new names
        adopted = {name: pid for name, pid in cluster.workers(0).items() if name in workers}
        assert adopted
        assert adopted.items() <= workers.items()
        cluster.wait_for("second", phase="finished")
        cluster.wait_for("first", workers=3, processes=3)
        (first / HURRY).touch()
        cluster.wait_for("first", phase="finished")
        assert cluster.job("first").rescalings >= 3
        assert_whole(first, 40)
        assert_whole(second, 4)


def test_a_training_hit_by_kill_goes_on_with_the_living_and_one_taken_down_from_its_checkpoint(
    tmp_path,
):
    with LocalCluster(tmp_path, "--policy", "static", slots=3) as cluster:
        workers = {"start_workers": 3, "max_workers": 3}
        records = submit(cluster, tmp_path, "hit", 30, slow=True, **workers)
        cluster.wait_for_steps("hit", 20)
        os.kill(cluster.all_workers(0, 3)["w1"], signal.SIGKILL)  # rank 0, who hosts the store
        cluster.wait_for("hit", workers=2)
        cluster.wait_for_steps("hit", 20)
        assert cluster.command("down").exit_code == 0
        reached = cluster.job("hit").step
        cluster.up()
        cluster.wait_for_steps("hit", 10)
        assert cluster.job("hit").step >= reached
        (records / HURRY).touch()
        cluster.wait_for("hit", phase="finished")
        assert_whole(records, 30)
