"""A process's peak of memory is its own, whoever started it."""

import subprocess
import sys

import numpy as np

from garfield.runs.process import peak_memory_bytes

TELL = "from garfield.runs.process import peak_memory_bytes; print(peak_memory_bytes())"


def test_the_peak_of_a_process_is_not_that_of_the_one_that_started_it():
    ballast = np.ones(400 << 20, np.uint8)
    told = subprocess.run([sys.executable, "-c", TELL], capture_output=True, text=True, check=True)
    assert ballast.all()
    assert peak_memory_bytes() > ballast.nbytes
    assert int(told.stdout) < 250 << 20
