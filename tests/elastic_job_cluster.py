"""A controller for tests of elastic jobs: starts workers, proposes generations, reads records."""

import json
import time
from collections import defaultdict

import torch

from garfield.elastic.job.on_sqlite import SqliteCoordination
from garfield.runs import attached
from tests import elastic_job_worker

WAIT_S = 250.0  # for what takes a second on a quiet machine


class Cluster:
    """The workers of one job. Use as a context: whoever is left at the end is killed."""

    def __init__(self, directory, **task):
        self.directory, self._task = directory, {"epochs": 1000, "pace_s": 0.004, **task}
        self.agreed = SqliteCoordination(directory / "job.sqlite")
        self.workers = {}

    def __enter__(self):
        attached.preload(["torch", "tests.elastic_job_worker"])
        return self

    def __exit__(self, *_):
        for worker in self.workers.values():
            worker.signal(9)
            worker.join()
            worker.close()
        self.agreed.close()

    def start(self, *members, **task):
        for member in members:
            arguments = (str(self.directory), member, {**self._task, **task})
            self.workers[member] = attached.start(elastic_job_worker.target, member, arguments)

    def propose(self, *members):
        """Whatever members have proposed meanwhile, this comes next."""
        while not self.agreed.propose(members, after=self.agreed.read().generation.number):
            pass
        return self.agreed.read().generation.number

    def record(self, member):
        path = self.directory / f"{member}.jsonl"
        if not path.exists():
            return []
        lines = path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def applied(self, member):
        """What the worker told of every step that it has applied."""
        return [line for line in self.record(member) if "applied" in line]

    def wait(self, condition, what):
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen; {self._told()}"
            time.sleep(0.01)

    def wait_for_steps(self, member, more, **where):
        """Until the worker has applied so many more steps, in that generation or so wide."""

        def count():
            found = self.applied(member)
            return sum(all(line[k] == v for k, v in where.items()) for line in found)

        goal = count() + more
        self.wait(lambda: count() >= goal, f"{more} steps of {member} with {where}")

    def wait_for_state(self, member, state):
        def is_so():
            return self.agreed.reports().get(member, {}).get("state") == state

        self.wait(is_so, f"{member} {state}")

    def ended(self, *members):
        """Their exit codes, once all have ended."""
        for member in members:
            worker = self.workers[member]
            self.wait(lambda w=worker: w.exit_code is not None, f"the end of {member}")
        return [self.workers[member].exit_code for member in members]

    def final(self):
        return torch.load(self.directory / "final.pt", weights_only=True)

    def lineage(self, survivors):
        """Samples that went into the model: {epoch: [index, ...]}, and the number of steps.

        Of each step, what all members of a generation drew for it, provided that one of those
        who went on has applied it in that generation.
        """
        applied = {}
        for member in survivors:
            for line in self.applied(member):
                applied[line["step"]] = line["generation"]
        assert sorted(applied) == list(range(len(applied))), "a step is missing"
        used = defaultdict(list)
        for member in self.workers:
            for line in self.record(member):
                if "drawn" in line and applied.get(line["step"]) == line["generation"]:
                    used[line["epoch"]] += line["drawn"]
        return used, len(applied)

    def _told(self):
        logs = {path.name: path.read_text()[-1500:] for path in self.directory.glob("*.log")}
        return f"agreed: {self.agreed.read()}, reports: {self.agreed.reports()}, logs: {logs}"


def assert_each_sample_once(used, samples):
    """In every epoch that has ended; and none twice in the one that has not."""
    assert used
    for epoch, indices in used.items():
        assert len(indices) == len(set(indices))
        if epoch < max(used):
            assert sorted(indices) == list(range(samples))


def assert_same_parameters(state, other):
    for name, tensor in state.items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-3, atol=1e-5)
