"""A command that ends with who has started it, however that ends; beside gRPC too."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import psutil
import pytest

from garfield.nodes.outbox import Outbox
from garfield.runs.process import ending_with_parent
from garfield.transport.contract import Key, first
from garfield.transport.grpc.transport import GrpcTransport
from garfield.transport.identity import PeerAddress

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel for what Linux has"),
]
WAIT_S = 60.0
LENGTH = 100_000


def test_it_is_killed_with_its_parent():
    words = "import subprocess, sys, time\n" \
            "from garfield.runs.process import ending_with_parent\n" \
            "print(subprocess.Popen(ending_with_parent(['sleep', '1000'])).pid, flush=True)\n" \
            "time.sleep(1000)\n"  # fmt: skip
    parent = subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    psutil.wait_procs([child], timeout=WAIT_S)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(("words", "code"), [(["true"], 0), (["sh", "-c", "kill -9 $$"], -9)])
def test_its_exit_code_is_the_command_s(words, code):
    assert subprocess.run(ending_with_parent(words), timeout=WAIT_S).returncode == code


def test_ctrl_c_reaches_it_though_we_ignore_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        told = ["sh", "-c", "kill -INT $$; echo ignored"]
        done = subprocess.run(ending_with_parent(told), timeout=WAIT_S, capture_output=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, b"")


def test_none_is_lost_while_grpc_talks():
    """With preexec_fn, one of 30 was ended by gRPC before it began."""
    over, book = threading.Event(), {}

    def talk():
        while not over.is_set():
            both = [GrpcTransport(name, book) for name in ("worker-0", "worker-1")]
            for transport in both:
                outbox = Outbox()
                outbox.publish(Key("gradient", 0), np.zeros(LENGTH, np.float32))
                transport.serve(outbox)
                book[transport.name] = PeerAddress(transport.address, "worker")
            for transport in both * 5:
                transport.pull([*book], Key("gradient", 0), length=LENGTH, until=first(2),
                               timeout_s=WAIT_S)  # fmt: skip
            for transport in both:
                transport.close()

    talking = threading.Thread(target=talk)
    talking.start()
    try:
        started = [subprocess.run(ending_with_parent(["true"]), timeout=WAIT_S) for _ in range(100)]
    finally:
        over.set()
        talking.join()
    assert {done.returncode for done in started} == {0}


def test_one_whose_parent_has_gone_does_not_begin(tmp_path):
    *before, _, word, path = ending_with_parent(["touch", tmp_path / "begun"])
    done = subprocess.run([*before, str(os.getpid() + 1), word, path], timeout=WAIT_S)
    assert done.returncode == 1
    assert not (tmp_path / "begun").exists()
