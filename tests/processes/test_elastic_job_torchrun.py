"""The fallback: workers of real agents of torchrun, which ends and restarts all on every change."""

import json
import os
import signal
import subprocess

import pytest

from garfield.elastic.job.group import OfferedStore
from garfield.elastic.job.torchrun_agent import agent_command, agent_environment
from tests.elastic_job_cluster import Cluster, assert_each_sample_once, assert_same_parameters
from tests.elastic_job_worker import digits, reference, seed_of

pytestmark = pytest.mark.heavy
SAMPLES = len(digits())
STEP = {"fixed_step": 24, "batch": 8, "collective_timeout_s": 120.0}


class Agent:
    """A process of torchrun, with the manners of the other tests' workers."""

    def __init__(self, process):
        self.process = process

    @property
    def exit_code(self):
        return self.process.poll()

    def signal(self, number):
        self.process.send_signal(number)

    def join(self):
        self.process.wait()

    def close(self):
        pass


class TorchrunCluster(Cluster):
    """One agent for each worker; the job's agreement lies beside its checkpoints."""

    def __init__(self, directory, **task):
        super().__init__(directory, **task)
        self._store = OfferedStore("127.0.0.1")

    def __exit__(self, *_):
        pids = {line["pid"] for member in self.workers for line in self.applied(member)}
        super().__exit__()
        for pid in pids:  # workers outlive an agent that is killed
            if _is_ours(pid):
                os.kill(pid, signal.SIGKILL)

    def start(self, *members, **task):
        for member in members:
            told = json.dumps({**self._task, **task})
            script = ["-m", "tests.elastic_job_worker", str(self.directory), member, told]
            command = agent_command(script, self._store.address, "test", workers=(1, 4))
            with (self.directory / f"{member}.agent.log").open("ab") as log:
                process = subprocess.Popen(
                    command, stdout=log, stderr=log, env={**os.environ, **agent_environment()}
                )
            self.workers[member] = Agent(process)

    def first_member(self):
        """Whose worker has rank 0 now."""
        return next(m for m in self.workers if self.applied(m)[-1]["rank"] == 0)


def _is_ours(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"tests.elastic_job_worker" in file.read()
    except OSError:
        return False


def test_torchruns_restarts_lose_no_step_and_no_sample(tmp_path):
    task = {"options": {**STEP, "checkpoint_dir": str(tmp_path)}}
    with TorchrunCluster(tmp_path, **task) as cluster:
        cluster.start("a0", "a1")
        for name in ("a0", "a1"):
            cluster.wait_for_steps(name, 5, workers=2)
        began_as = seed_of(cluster.first_member())
        cluster.start("a2")
        for name in ("a0", "a1", "a2"):
            cluster.wait_for_steps(name, 5, workers=3)

        leaving = cluster.first_member()
        cluster.workers[leaving].signal(signal.SIGTERM)
        cluster.ended(leaving)
        staying = [name for name in ("a0", "a1", "a2") if name != leaving]
        for name in staying:
            cluster.wait_for_steps(name, 5, workers=2)

        # a crash: the other one saves what it has, and both go on from there
        crashed = cluster.applied(staying[0])[-1]
        os.kill(crashed["pid"], signal.SIGKILL)
        for name in staying:
            cluster.wait_for_steps(name, 5, workers=2)
        assert cluster.applied(staying[0])[-1]["pid"] != crashed["pid"]

        for name in staying:
            cluster.workers[name].signal(signal.SIGTERM)
        cluster.ended(*staying)
        saved = cluster.agreed.read().checkpoint.step
        assert saved == max(line["applied"] for n in staying for line in cluster.applied(n))

        epoch = max(line["epoch"] for line in cluster.record(staying[0]) if "epoch" in line)
        cluster.start("a3", epochs=epoch + 1)
        assert cluster.ended("a3") == [0]
        assert cluster.applied("a3")[0]["step"] == saved
        used, steps = cluster.lineage(["a0", "a1", "a2", "a3"])
        assert_each_sample_once(used, SAMPLES)
        assert sorted(used[epoch]) == list(range(SAMPLES))
        assert_same_parameters(cluster.final(), reference(steps, 24, began_as))
