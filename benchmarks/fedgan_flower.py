"""A federated GAN by this library and by Flower: seconds, bytes and memory of a round.

Two devices that are processes, both of them in every round, 30 iterations of 50 on Fashion-MNIST,
one thread each; the same networks, trained on the same images by the same function
(`flower_gan.py`). Ours is `garfield fedgan train` as a user calls it: gRPC with TLS, every round
committed to SQLite. Flower's is its FedAvg over gRPC without TLS, nothing kept. The first round of
either is not counted. Bytes are what crossed the loopback interface, whoever sent them: ours hand
networks to each other as shared memory there, so what a device moves by its own account stands
beside it. Memory is the proportional set of all processes, at its peak.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich.console import Console

from benchmarks.alone import alone
from benchmarks.workers import ROOT
from garfield.core.errors import MissingDependency, RunError
from garfield.report.plain_tables import plain_table

QUESTION = "What does a round of a federated GAN cost beside Flower's?"
DEVICES = 2
FLOWER = ROOT / ".venv-flower"
_PACKAGES = ("flwr==1.41.0", "torch==2.13.0", "pillow", "safetensors")
_LOOK_S, _PATIENCE_S = 0.2, 900.0


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--flower-gans", nargs="+", default=["lsgan(width=0.25)", "lsgan"])
    group.add_argument("--flower-rounds", type=int, default=5, help="rounds of each")
    group.add_argument("--flower-steps", type=int, default=30, help="iterations of a device")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A line for each kind of network and each system."""
    python = _flower_python(console.print)
    table = plain_table(
        "networks", "by", "s a round", "MB on loopback", "MB a device", "peak memory, MB", right=4
    )  # fmt: skip
    found = []
    gans = ["lsgan(width=0.0625)"] if options.quick else options.flower_gans
    for gan in gans:
        settings = {
            "gan": gan, "data": "fashion-small" if options.quick else "fashion",
            "devices": DEVICES, "fraction": 1.0, "partition": "iid", "weighting": "uniform",
            "rounds": 3 if options.quick else options.flower_rounds,
            "local_steps": 2 if options.quick else options.flower_steps,
        }  # fmt: skip
        for name, measure in (("garfield", _ours), ("flower", _flowers)):
            with alone(), tempfile.TemporaryDirectory() as folder:
                line = measure(settings, Path(folder), python)
            found.append({"gan": gan, "by": name, **line})
            own = line.get("bytes_of_a_device")
            table.add_row(
                gan, name, f"{line['seconds']:.2f}", f"{line['loopback_bytes'] / 1e6:.1f}",
                "–" if own is None else f"{own / 1e6:.1f}", f"{line['peak_bytes'] / 1e6:.0f}",
            )  # fmt: skip
    console.print(table)
    for ours, theirs in zip(found[::2], found[1::2], strict=True):
        told = [f"{ours[key] / theirs[key]:.2f} times the {what}" for key, what in
                (("seconds", "seconds"), ("peak_bytes", "memory"))]  # fmt: skip
        console.print(f"{ours['gan']}: {' and '.join(told)} of Flower's.")
    return {"devices": DEVICES, "lines": found}


def _ours(settings: dict[str, Any], folder: Path, _: Path) -> dict[str, Any]:
    flags = [w for k, v in settings.items() for w in (f"--{k}".replace("_", "-"), str(v))]
    out = folder / "run"
    command = [
        sys.executable, "-m", "garfield", "fedgan", "train", *flags, "--judge", "none",
        "--evaluate-every", "0", "--no-train-classifier", "--out", str(out),
    ]  # fmt: skip
    with _watched(command, dict(os.environ), folder / "log.txt") as watched:
        code = watched.process.wait(_PATIENCE_S)
    if code:
        raise RunError(f"garfield fedgan train ended with {code}: {_tail(folder / 'log.txt')}")
    events = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rounds = [event for event in events if event["event"] == "round"]
    summary = json.loads((out / "summary.json").read_text())
    return {
        "seconds": median(event["seconds"] for event in rounds[1:]),
        "loopback_bytes": watched.loopback / len(rounds),
        "bytes_of_a_device": summary["bytes_per_device"] / len(rounds),
        "peak_bytes": watched.peak,
    }


def _flowers(settings: dict[str, Any], folder: Path, python: Path) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text, report = json.dumps(settings), folder / "rounds.json"
    env = {
        **os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "FLWR_HOME": str(folder),
        "FLWR_TELEMETRY_ENABLED": "0",
    }  # fmt: skip
    words = [str(python), "-m", "benchmarks.flower_gan"]
    server = [*words, "server", str(port), text, str(report)]
    clients = [[*words, "client", str(port), text, str(number)] for number in range(DEVICES)]
    with _watched(server, env, folder / "log.txt") as watched:
        _wait_for(port, watched.process)
        started = [subprocess.Popen(each, env=env, stdout=watched.log, stderr=watched.log)
                   for each in clients]  # fmt: skip
        watched.others.extend(started)
        code = watched.process.wait(_PATIENCE_S)
        for each in started:
            with suppress(subprocess.TimeoutExpired):
                each.wait(10.0)
    if code or not report.exists():
        raise RunError(f"Flower's server ended with {code}: {_tail(folder / 'log.txt')}")
    ended = json.loads(report.read_text())
    return {
        "seconds": median(later - sooner for sooner, later in pairwise(ended)),
        "loopback_bytes": watched.loopback / len(ended), "peak_bytes": watched.peak,
    }  # fmt: skip


# -- processes, and what they take ----------------------------------------------------------------


@dataclass
class _Watched:
    process: subprocess.Popen[bytes]
    log: Any
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)
    peak: int = 0
    loopback: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Add up memory until it is over."""
        while not self._over.wait(_LOOK_S):
            roots = [self.process, *self.others]
            self.peak = max(self.peak, sum(_memory(each.pid) for each in roots))

    def end(self) -> None:
        """Stop looking, and end all processes that still run."""
        self._over.set()
        for each in (self.process, *self.others):
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(each.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        child.kill()
            with suppress(ProcessLookupError):
                each.send_signal(signal.SIGKILL)
            each.wait()


@contextmanager
def _watched(command: list[str], env: dict[str, str], log: Path) -> Iterator[_Watched]:
    with log.open("wb") as file:
        before = _loopback()
        watched = _Watched(subprocess.Popen(command, env=env, stdout=file, stderr=file), file)
        looking = threading.Thread(target=watched.look, daemon=True)
        looking.start()
        try:
            yield watched
        finally:
            watched.loopback = _loopback() - before
            watched.end()
            looking.join()


def _memory(pid: int) -> int:
    """The proportional set of a process and of all below it."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0
    total = 0
    for each in family:
        with suppress(psutil.Error):
            total += each.memory_full_info().pss
    return total


def _loopback() -> int:
    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RunError(f"Flower's server does not listen on port {port}.")


def _tail(log: Path) -> str:
    return " ".join(log.read_text(errors="replace").split()[-60:])


def _flower_python(say: Callable[[str], None]) -> Path:
    """The Python of Flower's own environment, with torch, made on first use."""
    python, ready = FLOWER / "bin" / "python", FLOWER / f".ready-gan-{len(_PACKAGES)}"
    if ready.exists():
        return python
    say(f"Making {FLOWER.name} for Flower: once, some minutes.")
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(FLOWER)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-qq", *_PACKAGES], check=True)
    except subprocess.CalledProcessError as problem:
        raise MissingDependency(f"Flower cannot be installed here: {problem}.") from None
    ready.touch()
    return python
