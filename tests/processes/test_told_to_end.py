"""SIGTERM ends a process in good order, wherever its main thread is when it comes."""

import subprocess
import sys

PROGRAM = """
import os, signal, sys, time, weakref
from garfield.runs.process import end_on_sigterm

class Thing:
    pass

end_on_sigterm()
thing = Thing()
kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
try:
    del thing  # calls back, and Python drops what is raised there
    while True:
        time.sleep(0.05)
except SystemExit:
    os.kill(os.getpid(), signal.SIGTERM)  # told again: that must not disturb the end
    print("in good order")
    raise
"""


def test_what_comes_while_an_object_is_destroyed_is_not_lost():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "in good order\n", "")
