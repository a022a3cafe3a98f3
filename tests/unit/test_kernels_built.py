"""The kernels as other processors have them: built, and run where that is possible."""

import shutil
import struct
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import garfield.kernels
from tests.references import sq_dist

NATIVE = Path(garfield.kernels.__file__).parent / "native"
HARNESS = Path(__file__).parents[1] / "passes_of_one_isa.c"
ARM = "aarch64-linux-gnu-gcc"  # Debian: gcc-aarch64-linux-gnu
ARM_EMULATOR = "qemu-aarch64"  # Debian: qemu-user
AS_IN_SETUP = ["-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", f"-I{NATIVE}"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (NATIVE / "sorters.h").exists(), reason="not built from source here"),
]


def compiled(compiler, target, *options):
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler} here")
    subprocess.run([compiler, *AS_IN_SETUP, *options, "-o", str(target)], check=True)
    return str(target)


def check_passes(command, isa):
    """What the program computes is what the definitions say."""
    for n, d in [(2, 70), (3, 1), (7, 1_024), (17, 3_001), (18, 2_048), (32, 555)]:
        rng = np.random.default_rng(n)
        rows, weights = rng.standard_normal((n, d)).astype(np.float32), rng.standard_normal(n)
        given = struct.pack("=qq", n, d) + weights.tobytes() + rows.tobytes()
        told = subprocess.run(command, input=given, capture_output=True, check=True)
        assert told.stderr.decode() == isa
        numbers = np.frombuffer(told.stdout[: 8 * (n * n + n)])
        vectors = np.frombuffer(told.stdout[8 * (n * n + n) :], dtype=np.float32).reshape(3, d)
        wide = rows.astype(np.float64)
        dists = np.array([[sq_dist(a, b) for b in wide] for a in wide])
        np.testing.assert_allclose(numbers[: n * n].reshape(n, n), np.triu(dists), rtol=1e-5)
        np.testing.assert_allclose(numbers[n * n :], dists[0], rtol=1e-9)
        np.testing.assert_allclose(vectors[0], weights @ wide, atol=1e-5)
        np.testing.assert_array_equal(vectors[1], np.median(rows, axis=0))
        if n > 2:
            middle = np.sort(wide, axis=0)[1:-1].mean(axis=0)
            np.testing.assert_allclose(vectors[2], middle, rtol=1e-5, atol=1e-6)


def test_the_passes_for_64_bit_arm_build_and_compute_what_is_defined(tmp_path):
    program = compiled(ARM, tmp_path / "arm", "-static", '-DPASSES="baseline.c"', str(HARNESS))
    if shutil.which(ARM_EMULATOR) is None:
        pytest.skip(f"built for ARM, but there is no {ARM_EMULATOR} here to run it")
    check_passes([ARM_EMULATOR, program], "neon")


def test_the_module_builds_for_64_bit_arm(tmp_path):
    headers = f"-I{sysconfig.get_path('include')}"
    compiled(ARM, tmp_path / "module.o", "-c", headers, str(NATIVE / "module.c"))


def test_the_tiles_of_avx512_compute_what_is_defined_on_any_registers(tmp_path):
    shape = ["-DVECTOR=64", "-DTILE=4", "-DISA=shaped", '-DISA_NAME="shaped"']
    source = ['-DPASSES="for_isa.h"', str(HARNESS)]
    check_passes([compiled("gcc", tmp_path / "shaped", "-O1", *shape, *source)], "shaped")
