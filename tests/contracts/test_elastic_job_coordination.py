"""What every place that keeps a job's agreement promises: workers' safety rests on it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from garfield.core.errors import ConfigError
from garfield.elastic.job.coordination import BatchSize, CheckpointPointer, Generation, JobView
from garfield.elastic.job.on_kubernetes import KubernetesCoordination
from garfield.elastic.job.on_sqlite import SqliteCoordination
from garfield.elastic.kubernetes.access import from_kubeconfig
from garfield.elastic.kubernetes.client import ApiServer
from garfield.elastic.kubernetes.naming import (
    API_VERSION,
    KIND,
    core_path,
    jobs_path,
    reports_map,
)
from tests.kubernetes_cluster.cluster import MANIFESTS, Cluster
from tests.kubernetes_cluster.control_plane import require_binaries


class OnSqlite:
    """Opens the same job as often as is asked."""

    def __init__(self, directory):
        self._path, self._opened = directory / "job.sqlite", []

    def open(self):
        self._opened.append(SqliteCoordination(self._path))
        return self._opened[-1]

    def close(self):
        for each in self._opened:
            each.close()


class OnKubernetes:
    """The same in the status of an ElasticJob, on a real API server."""

    def __init__(self, cluster, name):
        self._cluster, self._name, self._opened = cluster, name, []
        path = core_path("configmaps", "default")
        cluster.api.create(path, {"metadata": {"name": reports_map(name)}})
        container = {"name": "train", "image": "none"}
        cluster.api.create(jobs_path("default"), {
            "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name},
            "spec": {"template": {"spec": {"containers": [container]}}},
        })  # fmt: skip

    def open(self):
        api = ApiServer(from_kubeconfig(self._cluster.plane.admin))
        opened = KubernetesCoordination(api, "default", self._name, batch_directory=None, least_s=0)
        self._opened.append(opened)
        return opened

    def close(self):
        for each in self._opened:
            each.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    require_binaries()
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        started.kubectl("apply", "-f", MANIFESTS / "elasticjobs.yaml")
        started.wait(lambda: started.api.list(jobs_path()) == [], "ElasticJobs known")
        yield started


@pytest.fixture(params=["sqlite", pytest.param("kubernetes", marks=pytest.mark.heavy)])
def job(request, tmp_path):
    if request.param == "sqlite":
        places = OnSqlite(tmp_path)
    else:
        name = f"job-{sum(request.node.name.encode())}"
        places = OnKubernetes(request.getfixturevalue("cluster"), name)
    yield places
    places.close()


def test_a_new_job_has_no_generation(job):
    assert job.open().read() == JobView()


def test_what_one_writes_another_reads(job):
    one, other = job.open(), job.open()
    assert one.propose(["a", "b"], after=0)
    one.arrive(1, "b")
    one.arrive(1, "a", "127.0.0.1:4")
    one.set_batch(BatchSize(8, 100))
    one.begin(1)
    one.move_checkpoint(CheckpointPointer(1, 20, "c"), after=None)
    one.finish()
    assert other.read() == JobView(
        Generation(1, ("a", "b")), 1, {"a": "127.0.0.1:4", "b": ""}, BatchSize(8, 100),
        CheckpointPointer(1, 20, "c"), True,
    )  # fmt: skip


def test_a_generation_follows_the_newest_only(job):
    one, other = job.open(), job.open()
    assert one.propose(["a", "b"], after=0)
    assert other.propose(["b"], after=1)
    assert not one.propose(["a"], after=1)
    assert one.read().generation == Generation(2, ("b",))


def test_of_many_proposals_at_once_one_succeeds(job):
    openers = [job.open() for _ in range(8)]
    together = threading.Barrier(len(openers))

    def propose(number):
        together.wait()
        return openers[number].propose([f"w{number}"], after=0)

    with ThreadPoolExecutor(len(openers)) as pool:
        won = list(pool.map(propose, range(len(openers))))
    assert won.count(True) == 1
    assert job.open().read().generation == Generation(1, (f"w{won.index(True)}",))


def test_arrivals_are_of_the_newest_generation_and_stay_without_their_stores(job):
    kept = job.open()
    kept.propose(["a"], after=0)
    kept.propose(["a", "b"], after=1)
    kept.arrive(1, "a", "h:1")
    assert kept.read().arrived == {}
    kept.arrive(2, "a", "h:2")
    assert (kept.read().store, kept.read().is_ready(Generation(1, ("a",)))) == ("h:2", False)
    kept.arrive(2, "b")
    assert kept.read().is_ready(Generation(1, ("a",)))
    kept.propose(["b", "c"], after=2)
    assert kept.read().arrived == {"b": ""}


def test_an_older_generation_does_not_begin_after_a_later_one(job):
    kept = job.open()
    assert kept.begin(1)
    assert kept.begin(3)
    assert not kept.begin(2)
    assert not kept.begin(3)
    assert kept.read().begun == 3


def test_the_pointer_moves_only_from_where_it_is(job):
    kept = job.open()
    first, second = CheckpointPointer(1, 10, "first"), CheckpointPointer(1, 20, "second")
    assert kept.move_checkpoint(first, after=None)
    assert not kept.move_checkpoint(second, after=None)
    assert not kept.move_checkpoint(second, after=second)
    assert kept.move_checkpoint(second, after=first)
    assert kept.read().checkpoint == second


def test_a_half_that_was_left_behind_cannot_move_the_pointer(job):
    kept = job.open()
    kept.propose(["a", "b"], after=0)
    kept.begin(1)
    kept.propose(["a"], after=1)
    assert kept.move_checkpoint(CheckpointPointer(1, 10, "both"), after=None)
    kept.begin(2)
    old = kept.read().checkpoint
    assert not kept.move_checkpoint(CheckpointPointer(1, 20, "b alone"), after=old)
    assert kept.move_checkpoint(CheckpointPointer(2, 20, "a"), after=old)


def test_the_later_batch_size_counts_and_a_limit_is_never_lost(job):
    kept = job.open()
    assert kept.set_batch(BatchSize(64, 100))
    assert not kept.set_batch(BatchSize(8, 100))
    assert not kept.set_batch(BatchSize(8, 99))
    assert kept.set_batch(BatchSize(32, 101, most=32))
    assert kept.set_batch(BatchSize(128, 102))
    assert kept.read().batch == BatchSize(128, 102, most=32)
    assert kept.read().batch.allowed == 32
    assert kept.set_batch(BatchSize(16, 103, most=16))
    assert kept.set_batch(BatchSize(16, 104, most=99))
    assert kept.read().batch.most == 16


def test_a_finished_training_goes_on_only_if_it_is_reopened(job):
    kept = job.open()
    kept.propose(["a", "b"], after=0)
    kept.finish()
    assert not kept.propose(["a"], after=1)
    assert kept.read().finished
    assert kept.propose(["c"], after=1, reopen=True)
    assert not kept.read().finished


def test_one_member_needs_no_store(job):
    kept = job.open()
    kept.propose(["a"], after=0)
    assert kept.read().is_ready(Generation(0, ("a", "b")))
    assert not kept.read().is_ready(Generation(0, ("b",)))


def test_the_last_report_of_each_member_is_kept(job):
    kept, other = job.open(), job.open()
    kept.report("a", {"step": 1, "throughput": 2.5})
    kept.report("b", {"step": 1})
    kept.report("a", {"step": 2, "throughput": float("nan")})
    assert other.reports() == {"a": {"step": 2, "throughput": None}, "b": {"step": 1}}


@pytest.mark.parametrize("members", [[], ["a", "a"], ["a", ""]])
def test_a_generation_has_members_with_names_of_their_own(job, members):
    with pytest.raises(ConfigError, match="names of their own"):
        job.open().propose(members, after=0)
