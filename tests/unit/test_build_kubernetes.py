"""Where the control plane of the tests is kept, and what is missing there."""

import subprocess
import sys
from pathlib import Path

from tools import build_kubernetes
from tools.build_kubernetes import COMPONENTS, VERSION, home, missing


def test_the_cache_is_outside_the_repository_and_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.delenv("GARFIELD_KUBERNETES", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert home() == tmp_path / "garfield" / f"kubernetes-{VERSION}"
    monkeypatch.setenv("GARFIELD_KUBERNETES", "/elsewhere")
    assert home() == Path("/elsewhere")


def test_what_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing(tmp_path) == [*COMPONENTS, "etcd", "kubectl"]
    (tmp_path / "bin").mkdir()
    for name in (*COMPONENTS, "kubectl"):
        (tmp_path / "bin" / name).touch(mode=0o755)
    (tmp_path / "bin" / "etcd").touch(mode=0o644)
    assert missing(tmp_path) == ["etcd"]


def test_a_machine_without_debians_tools_is_told_what_to_do(tmp_path):
    done = subprocess.run(
        [sys.executable, build_kubernetes.__file__],
        env={"GARFIELD_KUBERNETES": str(tmp_path), "PATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "apt-get is not on this machine" in done.stderr
    assert "kube-apiserver" in done.stderr
