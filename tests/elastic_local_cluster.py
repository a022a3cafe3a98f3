"""A local cluster for tests: its commands called as a user would, and all its processes watched."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from garfield.elastic.local.cluster import Cluster
from garfield.elastic.local.status import status_of
from garfield.runs.run_directory import RunDirectory
from tests.command import invoke

WAIT_S = 250.0  # for what takes seconds on a quiet machine
LIGHT = Path(__file__).with_name("elastic_light_worker.py")
QUICK = ("--monitor-s", "0.2", "--decide-s", "0.5", "--collect-s", "0.3", "--grace-s", "2")


class LocalCluster:
    """Use as a context: it is taken down at the end, and nothing of it may be left then."""

    def __init__(self, directory, *flags, slots=4, load=None):
        self._load = load
        self.path, self._flags = directory / "cluster", (*QUICK, "--slots", slots, *flags)
        self._files = directory
        self.daemons = []

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, kind, *_):
        pids = self.pids()
        done = invoke(["elastic", "down", "--dir", self.path])
        self._reap()
        for pid in [*pids, *self.daemons]:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
                assert kind is not None, f"{pid} was left behind; {self.told()}"
        if kind is None:
            assert done.exit_code == 0, done.output
            assert not list(self._processes("*.json"))

    def up(self, *flags):
        words = ["elastic", "up", *self._flags, *flags, "--json", "--dir", self.path]
        if self._load:  # in a process of its own: what it registers stays there
            words = ["--load", self._load, *words]
            command = [sys.executable, "-m", "garfield", *map(str, words)]
            told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        else:
            done = invoke(words)
            assert done.exit_code == 0, done.output
            told = done.stdout
        self.daemons.append(json.loads(told)["pid"])

    def command(self, word, *rest):
        return invoke(["elastic", word, *rest, "--dir", self.path])

    def submit(self, name, *arguments, script=LIGHT, **request):
        """Submit a job; words for its script, and what it asks for."""
        words = json.dumps([sys.executable, str(script), *map(str, arguments)])
        asked = [f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in request.items()]
        file = self._files / f"{name}.toml"
        environment = json.dumps([f"PYTHONPATH={os.pathsep.join(sys.path)}"])
        file.write_text("\n".join([f"command = {words}", f"environment = {environment}", *asked]))
        done = self.command("submit", file)
        assert done.exit_code == 0, done.output

    @property
    def status(self):
        return status_of(Cluster(self.path))

    def job(self, name):
        return [job for job in self.status.jobs if job.name == name][-1]

    def wait(self, condition, what):
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen; {self.told()}"
            time.sleep(0.02)

    def wait_for(self, name, **where):
        """Until the job is so: phase="running", workers=2, processes=2."""

        def is_so():
            return all(getattr(self.job(name), key) == value for key, value in where.items())

        self.wait(is_so, f"{name} with {where}")

    def wait_for_steps(self, name, more):
        goal = self.job(name).step + more
        self.wait(lambda: self.job(name).step >= goal, f"{more} steps of {name}")

    def kill_daemon(self):
        os.kill(self.daemons[-1], signal.SIGKILL)
        os.waitpid(self.daemons[-1], 0)

    def workers(self, job):
        """Pids of a job's worker processes, behind their shims, by name."""
        found = {}
        for file in self._processes(f"{job}-w*.json"):
            with suppress(OSError, ValueError, KeyError):
                record = json.loads(file.read_text())
                children = Path(f"/proc/{record['pid']}/task/{record['pid']}/children")
                if not record["ended"] and (pids := children.read_text().split()):
                    found[file.stem.partition("-")[2]] = int(pids[0])
        return found

    def all_workers(self, job, count):
        """The same once so many run: a shim starts a moment before its worker."""
        self.wait(lambda: len(self.workers(job)) == count, f"{count} workers of job {job}")
        return self.workers(job)

    def pids(self):
        """All processes: shims, and workers behind them."""
        found = []
        for file in self._processes("*.json"):
            with suppress(OSError, ValueError):
                pid = json.loads(file.read_text())["pid"]
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                found += [pid, *map(int, children)]
        return found

    def events(self, kind):
        events = RunDirectory(self.path).events()
        return [event for event in events if event["event"] == kind]

    def log(self, job, member):
        return (self.path / "processes" / f"{job}-{member}.log").read_text()

    def told(self):
        logs = {path.name: path.read_text()[-1500:] for path in self._processes("*.log")}
        daemon = (self.path / "daemon.log").read_text()[-4000:]
        return f"{self.status}, logs: {logs}, daemon: {daemon}"

    def _processes(self, pattern):
        return sorted((self.path / "processes").glob(pattern))

    def _reap(self):
        for pid in self.daemons:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def is_running(pid):
    """Whether it runs: one that waits for its parent to notice its end does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
