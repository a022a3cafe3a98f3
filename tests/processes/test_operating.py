"""docs/operating.md: every command of it, in its order, with real processes on loopback."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from garfield.launch.drill.ports import lasting_ports

pytest.importorskip("torch")
pytest.importorskip("grpc")
pytest.importorskip("cryptography")

PAGE = (Path(__file__).parents[2] / "docs/operating.md").read_text()
PATIENCE_S = 240.0  # for a machine that is busy otherwise
NODES = ("server-0", "worker-0", "worker-1", "worker-2", "worker-3", "worker-4")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.M | re.S)


class Machine:
    """A shell in a directory, and what is going on there."""

    def __init__(self, directory):
        self.directory = directory
        self.environment = {
            **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TMPDIR": str(directory),
        }  # fmt: skip

    def run(self, text):
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", text], cwd=self.directory, text=True,
            env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}\n{self.logs()}"
        return done.stdout

    def alive(self, node):
        file = self.directory / f"{node}.pid"
        if not file.exists():
            return False
        try:
            state = Path(f"/proc/{int(file.read_text())}/stat").read_text().rpartition(")")[2]
        except (OSError, ValueError):
            return False
        return state.split()[0] != "Z"

    def told(self, node):
        """How many steps, or gradients, it has told of."""
        found = list(self.directory.glob(f"**/runs/{node}/metrics.jsonl"))
        lines = [line for path in found for line in path.read_text().splitlines()]
        return sum('"event": "step"' in line or '"event": "worker"' in line for line in lines)

    def goes_on(self):
        """Wait until every node that runs has told of something new; none has ended."""
        running = [node for node in NODES if self.alive(node)]
        before = {node: self.told(node) for node in running}
        deadline = time.monotonic() + PATIENCE_S
        while any(self.told(node) <= before[node] for node in running):
            gone = [node for node in running if not self.alive(node)]
            assert not gone, f"{gone} ended\n{self.logs()}"
            assert time.monotonic() < deadline, f"waited in vain\n{self.logs()}"
            time.sleep(0.1)

    def logs(self):
        found = sorted(self.directory.glob("*.log"))
        return "\n".join(f"== {path.name}\n{path.read_text()[-1500:]}" for path in found)

    def reap(self):
        for node in NODES:
            if self.alive(node):
                os.kill(int((self.directory / f"{node}.pid").read_text()), signal.SIGKILL)


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    yield made
    made.reap()


@pytest.mark.heavy
@pytest.mark.timeout(1800)
def test_every_command_of_the_operators_page_does_what_it_says(machine):
    [cluster] = blocks("toml")
    for number, port in enumerate(lasting_ports(len(NODES)), start=1):
        cluster = cluster.replace(f"10.0.0.{number}:7000", f"127.0.0.1:{port}")
    (machine.directory / "cluster.toml").write_text(cluster)
    said = {}
    for text in blocks("sh"):
        said[text] = machine.run(text)
        machine.goes_on()
        assert "Traceback" not in machine.logs()
    assert not [node for node in NODES if machine.alive(node)]
    [liars] = [out for text, out in said.items() if "['liars']" in text]
    assert "worker-4" in liars
    assert "worker-0" not in liars
    summary = json.loads((machine.directory / "runs/server-0/summary.json").read_text())
    assert summary["excluded"] == ["worker-4"]
    assert summary["accuracy"] > 0.8
    assert (machine.directory / "certs-2/ca.pem").exists()
