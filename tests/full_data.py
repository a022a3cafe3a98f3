"""The whole of Fashion-MNIST for tests that need it: found, or got once and kept.

Looked for where `garfield` itself looks ($GARFIELD_DATA, else ~/.cache/garfield). If it is not
there it is put there: from Debian's package dataset-fashion-mnist where there is apt, else from
where `garfield data fetch` gets it. What was found or got is held to the known hash.
"""

import fcntl
import gzip
import hashlib
import os
import subprocess
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from garfield.core.errors import GarfieldError
from garfield.data import load
from garfield.data.download import fetch
from garfield.data.stored import data_directory

PACKAGE = "dataset-fashion-mnist"
PLACE = "fashion-mnist"
SHA256 = "ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f"
"""Of all pixels and labels, those of the training set first."""
APT_S, DOWNLOAD_S = 200, 20.0


@cache
def fashion():
    """The data directory that holds all 70,000 images; skips the test if they cannot be had."""
    if _is_whole(data_directory()):
        return data_directory()
    root, problems = _writable(), []
    with _alone(root):
        if _is_whole(root):  # another process was first
            return root
        for get in (_from_debian, lambda to: fetch("fashion", to, timeout_s=DOWNLOAD_S)):
            try:
                get(root)
            except (GarfieldError, OSError, subprocess.SubprocessError) as problem:
                problems.append(_in_a_line(problem))
            if _is_whole(root):
                return root
    return pytest.skip(f"All of Fashion-MNIST is needed, and not to be had: {'; '.join(problems)}")


def _is_whole(root):
    try:
        data = load("fashion", root)
    except GarfieldError:
        return False
    digest = hashlib.sha256()
    for part in ("train", "test"):
        digest.update(data.pixels(part).tobytes())
        digest.update(data.labels(part).astype("uint8").tobytes())
    return digest.hexdigest() == SHA256


def _writable():
    """Where data belong, or a place that all test processes of this user share."""
    for root in (data_directory(), Path(tempfile.gettempdir()) / f"garfield-tests-{os.getuid()}"):
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(root, os.W_OK):
            return root
    return pytest.skip("There is no directory to keep Fashion-MNIST in. Set GARFIELD_DATA.")


@contextmanager
def _alone(root):
    with (root / ".getting-fashion").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _from_debian(root):
    with tempfile.TemporaryDirectory() as made:
        here = Path(made)
        os.chmod(here, 0o755)  # apt as root reads as another user
        try:
            _run("apt-get", "download", PACKAGE, cwd=here)
        except subprocess.CalledProcessError:  # there are no lists of packages yet
            own = _own_lists(here)
            _run("apt-get", *own, "update", cwd=here)
            _run("apt-get", *own, "download", PACKAGE, cwd=here)
        [package] = here.glob("*.deb")
        _run("dpkg-deb", "-x", package, here / "x", cwd=here)
        found = here / "x/usr/share/datasets/fashion-mnist"
        (root / PLACE).mkdir(exist_ok=True)
        for file in found.glob("*.gz"):
            part = root / PLACE / f".{file.stem}.part"
            part.write_bytes(gzip.decompress(file.read_bytes()))
            part.replace(root / PLACE / file.stem)


def _own_lists(here):
    """Options for apt to keep everything here: no need to be root, and nothing else changes."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (here / folder).mkdir(parents=True)
    options = {
        "Dir::State": here / "state", "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": here / "cache", "APT::Sandbox::User": "root",
    }  # fmt: skip
    return [word for key, value in options.items() for word in ("-o", f"{key}={value}")]


def _run(*words, cwd):
    subprocess.run(words, cwd=cwd, check=True, capture_output=True, text=True, timeout=APT_S)


def _in_a_line(problem):
    said = getattr(problem, "stderr", None) or str(problem)
    return " ".join(str(said).split())[-300:]
