"""Memory limits on real processes: who takes too much ends, and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from garfield.core.errors import ConfigError
from garfield.runs.control_groups import Version, own_group
from garfield.split.server import memory_groups
from garfield.split.server.limited_memory import Source
from garfield.split.server.limits import device_memory
from garfield.split.server.memory_groups import GroupV2

MiB = 1 << 20
TAKES = """
import sys
sys.stdin.readline()
taken = []
for line in sys.stdin:
    taken.append(bytearray(int(line)))
    print(len(taken), flush=True)
"""


class Taker:
    """A process that takes as much memory as it is told to."""

    def __init__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", TAKES], **pipes)

    def say(self, text):
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def take(self, amount):
        self.say(amount)
        return self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


@pytest.fixture(params=[Source.CGROUP_V1, Source.CGROUP_V2, Source.RLIMIT], ids=lambda s: s.name)
def device(request):
    try:
        memory = device_memory("test", 300 * MiB, [request.param])
    except ConfigError as why:
        pytest.skip(str(why))
    yield memory
    memory.close()
    if hasattr(memory, "directory"):
        assert not memory.directory.exists()


def test_a_worker_over_its_limit_ends_and_its_neighbour_goes_on(device):
    with Taker() as greedy, Taker() as modest:
        for name, taker in (("greedy", greedy), ("modest", modest)):
            taker.memory = device.worker(name)
            taker.memory.take_in(taker.process.pid)
            taker.memory.limit(100 * MiB)
            taker.say("go")
        assert modest.take(50 * MiB) == "1\n"
        assert greedy.take(20 * MiB) == "1\n"
        assert greedy.take(200 * MiB) == ""
        assert greedy.process.wait(30) != 0
        assert modest.take(1 * MiB) == "2\n"
        assert 50 * MiB <= modest.memory.used_bytes <= modest.memory.peak_bytes <= 100 * MiB
        if device.source is not Source.RLIMIT:
            assert (greedy.memory.kills, modest.memory.kills) == (1, 0)
            assert device.peak_bytes <= 300 * MiB
    for taker in (greedy, modest):
        taker.memory.close()


def test_a_peak_is_forgotten_when_told_and_a_limit_can_be_raised_and_lowered(device):
    code = (
        "import sys\nsys.stdin.readline()\nfor line in sys.stdin:\n"
        "    bytearray(int(line))\n    print('freed', flush=True)\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        memory = device.worker("worker")
        memory.take_in(process.pid)
        process.stdin.write("go\n")
        for limit, amount in ((200, 120), (100, 40), (250, 160)):
            memory.limit(limit * MiB)
            memory.forget_peak()
            process.stdin.write(f"{amount * MiB}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "freed\n"
            assert amount * MiB <= memory.peak_bytes <= (amount + 30) * MiB
        process.stdin.close()
        assert process.wait(30) == 0
    memory.close()


def test_the_peak_of_a_device_without_groups_counts_who_has_ended_and_nobody_twice():
    """Workers come and go: what was held at a time counts, not what was held in all."""
    memory = device_memory("test", 300 * MiB, [Source.RLIMIT])
    with Taker() as lasting:
        held = memory.worker("lasting")
        held.take_in(lasting.process.pid)
        lasting.say("go")
        lasting.take(30 * MiB)
        for _ in range(3):
            with Taker() as brief:
                of_brief = memory.worker("brief")
                of_brief.take_in(brief.process.pid)
                brief.say("go")
                brief.take(40 * MiB)
                assert memory.peak_bytes >= 70 * MiB
            of_brief.close()
        assert 70 * MiB <= memory.peak_bytes < 90 * MiB
        held.forget_peak()  # of a task, not of the device
        assert memory.peak_bytes >= 70 * MiB
    assert memory.peak_bytes >= 70 * MiB  # though nobody is there now
    with pytest.raises(OSError):
        _ = held.used_bytes
    memory.close()


def test_the_budget_of_a_device_holds_whatever_its_workers_are_allowed():
    try:
        device = device_memory("budget", 100 * MiB, [Source.CGROUP_V1, Source.CGROUP_V2])
    except ConfigError as why:
        pytest.skip(str(why))
    with Taker() as taker:
        memory = device.worker("worker")
        memory.take_in(taker.process.pid)
        memory.limit(500 * MiB)
        taker.say("go")
        assert taker.take(200 * MiB) == ""
        assert taker.process.wait(30) != 0
    assert device.peak_bytes <= 100 * MiB
    memory.close()
    device.close()


def test_groups_of_servers_that_were_killed_are_swept(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = tmp_path / f"garfield-split-{gone.pid}-cpu" / "worker-0"
    left.mkdir(parents=True)
    ours = tmp_path / f"garfield-split-{os.getpid()}-cpu"
    ours.mkdir()
    memory_groups.sweep(tmp_path)
    assert [*tmp_path.iterdir()] == [ours]


def test_version_2_is_found_and_written_to_as_the_kernel_documents(tmp_path):
    """This machine may have version 1 only: its files are played by plain ones."""
    group = tmp_path / "user.slice" / "garfield.scope"
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text("cpu memory pids\n")
    table = tmp_path / "table"
    table.write_text("12:pids:/x\n0::/user.slice/garfield.scope\n")
    assert own_group(Version.V2, "memory", tmp_path, str(table)) == group
    with pytest.raises(FileNotFoundError):
        own_group(Version.V1, "memory", tmp_path, str(table))
    worker = GroupV2(group / "device").worker("w")
    worker.take_in(77)
    worker.limit(5 * MiB)
    read = {path.name: path.read_text() for path in worker.directory.iterdir()}
    assert read == {"cgroup.procs": "77", "memory.swap.max": "0", "memory.max": str(5 * MiB)}
    assert (group / "device" / "cgroup.subtree_control").read_text() == "+memory"
    (worker.directory / "memory.current").write_text("4096\n")
    (worker.directory / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    assert (worker.used_bytes, worker.peak_bytes, worker.kills) == (4096, 4096, 1)


def test_where_nothing_limits_memory_that_is_said(tmp_path):
    with pytest.raises(ConfigError, match="Memory cannot be limited here: cgroup v2"):
        device_memory("none", MiB, [Source.CGROUP_V2], tmp_path)
