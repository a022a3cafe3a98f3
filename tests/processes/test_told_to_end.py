"""SIGTERM and Ctrl-C end a process in good order, wherever its main thread is when they come."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, time, weakref
from garfield.runs.interrupts import Interrupts, raise_once
from garfield.runs.process import end_on_sigterm

class Thing:
    pass

def told_while_a_thing_is_destroyed(number, kind, again=True):
    thing = Thing()
    kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), number))
    try:
        del thing  # calls back, and Python drops what is raised there
        while True:
            time.sleep(0.05)
    except kind:
        if again:
            os.kill(os.getpid(), number)  # that must not disturb the end
        print("in good order")
        raise
"""
TOLD = {
    "a node": "end_on_sigterm(); told_while_a_thing_is_destroyed(signal.SIGTERM, SystemExit)",
    "a command": """
raise_once()
try:
    told_while_a_thing_is_destroyed(signal.SIGINT, KeyboardInterrupt)
except KeyboardInterrupt:
    pass
""",
    "a training": """
with Interrupts() as interrupts:
    try:
        with interrupts.allowed():
            told_while_a_thing_is_destroyed(signal.SIGINT, KeyboardInterrupt, again=False)
    except KeyboardInterrupt:
        assert interrupts.heard == 1, interrupts.heard  # a second would raise once more
""",
}


@pytest.mark.parametrize("how", TOLD)
def test_what_comes_while_an_object_is_destroyed_is_not_lost(how):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + TOLD[how]], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "in good order\n", "")
