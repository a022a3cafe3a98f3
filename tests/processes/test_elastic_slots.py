"""Slots are held to their share of a core: by control groups, or by pacing."""

import subprocess
import sys
import time

import pytest

from garfield.elastic.local.slots import PERIOD_US, Pacer, SlotGroups, slot_groups
from garfield.elastic.local.worker_process import NOT_STARTED, WorkerTask, run
from garfield.runs import outliving
from garfield.runs.control_groups import Version, write

BUSY = "while True: pass"
MOST = 0.3
"""Of a core. Noise makes a process slower, never faster."""


def used_s(pid):
    return time.clock_gettime((~pid << 3) | 2)


def share_of(pid, seconds):
    """The part of a core that a process uses from now on."""
    began, before = time.monotonic(), used_s(pid)
    time.sleep(seconds)  # what is measured is a share of time
    return (used_s(pid) - before) / (time.monotonic() - began)


@pytest.fixture
def busy():
    process = subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_paced_process_uses_its_share_and_is_let_go(busy):
    pacer = Pacer(busy.pid, MOST)
    assert 0 < share_of(busy.pid, 1.0) < MOST + 0.1
    pacer.close()
    before = used_s(busy.pid)
    deadline = time.monotonic() + 30
    while used_s(busy.pid) < before + 0.05:
        assert time.monotonic() < deadline, "it stayed stopped"
        time.sleep(0.01)


@pytest.mark.slow
def test_a_control_group_holds_a_slot_to_its_share(busy, tmp_path):
    groups = slot_groups(tmp_path, MOST)
    if groups is None:
        pytest.skip("no control group may be made here")
    write(groups.slot(1) / "cgroup.procs", busy.pid)
    assert 0 < share_of(busy.pid, 1.0) < MOST + 0.1
    again = slot_groups(tmp_path, MOST)  # a daemon that came back finds them
    assert again.directory == groups.directory
    busy.kill()
    busy.wait()
    groups.close()
    assert not groups.directory.exists()


def test_version_2_is_written_to_as_the_kernel_documents(tmp_path):
    """This machine may have version 1 only: its files are played by plain ones."""
    groups = SlotGroups(tmp_path / "cluster", Version.V2, 0.25)
    group = groups.slot(3)
    assert (tmp_path / "cluster" / "cgroup.subtree_control").read_text() == "+cpu"
    assert (group / "cpu.max").read_text() == f"{PERIOD_US // 4} {PERIOD_US}"


def test_where_no_group_may_be_made_there_is_none(tmp_path):
    assert slot_groups(tmp_path, MOST, mount=tmp_path / "nothing") is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ((sys.executable, "-c", "raise SystemExit(5)"), 5),
        ((sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"), 128 + 9),
        (("/no/such/program",), NOT_STARTED),
    ],
)
def test_a_shim_ends_as_its_worker_does(tmp_path, command, code):
    task = WorkerTask(command, str(tmp_path), {}, 1.0)
    shim = outliving.start(run, "worker", (task,), tmp_path)
    assert shim.join(60)
    assert shim.exit_code == code
    shim.close()


@pytest.mark.slow
def test_a_worker_beyond_its_memory_is_refused_more_and_nothing_else(tmp_path):
    script = "try: bytearray(300 << 20)\nexcept MemoryError: print('too much')"
    task = WorkerTask((sys.executable, "-c", script), str(tmp_path), {}, 1.0, None, 100 << 20)
    shim = outliving.start(run, "worker", (task,), tmp_path)
    assert shim.join(60)
    assert shim.exit_code == 0
    assert "too much" in (tmp_path / "worker.log").read_text()
    shim.close()
