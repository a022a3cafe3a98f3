"""Two network namespaces with a link of limited bandwidth between them: store here, client there.

    with LimitedNetwork(mbps=150) as network:
        swift = Popen([*network.beside_store, sys.executable, "-m", "garfield.split.embedded", …])
        train = Popen([*network.beside_client, sys.executable, "-m", "garfield", "split", …])
        network.limit(20)

`tc tbf` holds both directions to the rate; its bucket is a few milliseconds of it, so that
bursts do not pass for bandwidth. Each side may be pinned to one core. Needs root and iproute2.
Namespaces are named after this process and go with the context.

As a benchmark it asks what comes through, by reading objects of a real Swift.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from garfield.core.errors import ConfigError

QUESTION = "How much of a limited link does reading from the store use?"
STORE, CLIENT = "10.199.0.1", "10.199.0.2"
_LATENCY = "400ms"  # of queue: a short one drops packets, which TCP takes for congestion

READER = """
import json, sys, time
from garfield.split.stores import StoreSettings, open_store
told, size = json.loads(sys.argv[1]), int(sys.argv[2])
user = told["users"]["alice"]
store = open_store("swift://speed", settings=StoreSettings(
    swift_auth_url=told["auth_url"], swift_user=user["login"], swift_key=user["key"],
    plain_http=True))
store.put("object", bytes(size)) if sys.argv[3] == "put" else store.size("object")
began = time.perf_counter()
for _ in range(2):
    assert len(store.get("object")) == size
print(json.dumps({"seconds": (time.perf_counter() - began) / 2}))
"""


class LimitedNetwork:
    """Two namespaces and the link between them, while the context lasts."""

    def __init__(self, mbps: float, *, cores: tuple[int, int] | None = None) -> None:
        """`cores` are the one that the store's side may use, and the client's."""
        if os.geteuid() != 0 or not shutil.which("tc"):
            raise ConfigError("Network namespaces need root, and ip and tc (iproute2).")
        self._names = [f"garfield-{side}-{os.getpid()}" for side in ("store", "client")]
        self._cores = cores
        self._mbps = mbps

    @property
    def beside_store(self) -> list[str]:
        """What to put before a command to run it at the store's side, at address `STORE`."""
        return self._inside(0)

    @property
    def beside_client(self) -> list[str]:
        """The same for the client's side, at address `CLIENT`."""
        return self._inside(1)

    def __enter__(self) -> LimitedNetwork:
        try:
            for name in self._names:
                _do("ip", "netns", "add", name)
            first, second = self._names
            _do("ip", "link", "add", "gf0", "netns", first, "type", "veth",
                "peer", "name", "gf1", "netns", second)  # fmt: skip
            for name, link, address in ((first, "gf0", STORE), (second, "gf1", CLIENT)):
                _do("ip", "-n", name, "addr", "add", f"{address}/24", "dev", link)
                _do("ip", "-n", name, "link", "set", link, "up")
                _do("ip", "-n", name, "link", "set", "lo", "up")
            self.limit(self._mbps)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def limit(self, mbps: float) -> None:
        """Hold both directions to so many megabits a second from now on."""
        burst = max(16_000, int(mbps * 1e6 / 8 * 0.004))  # bytes: 4 ms, and some packets at least
        for name, link in zip(self._names, ("gf0", "gf1"), strict=True):
            _do("tc", "-n", name, "qdisc", "replace", "dev", link, "root", "tbf",
                "rate", f"{mbps:g}mbit", "burst", str(burst), "latency", _LATENCY)  # fmt: skip
        self._mbps = mbps

    def _inside(self, side: int) -> list[str]:
        pinned = ["taskset", "-c", str(self._cores[side])] if self._cores else []
        return ["ip", "netns", "exec", self._names[side], *pinned]

    def _remove(self) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--mbps", type=float, nargs="+", default=[5, 20, 50, 150, 500, 1000])


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A line per bandwidth: what came through."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for heading in ("limit, Mbps", "read at, Mbps", "share"):
        table.add_column(heading, justify="right")
    found = []
    rates = options.mbps[:2] if options.quick else options.mbps
    with tempfile.TemporaryDirectory() as directory, LimitedNetwork(1000) as network:
        swift = subprocess.Popen(
            [*network.beside_store, sys.executable, "-m", "garfield.split.embedded", directory,
             "--host", STORE],
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert swift.stdout is not None
        try:
            told = swift.stdout.readline()
            for mbps in rates:
                size = int(mbps * 1e6 / 8)  # a second of it
                network.limit(1000)
                for do in ("put", "get"):
                    network.limit(1000 if do == "put" else mbps)
                    seconds = _read(network, told, size, do)
                read = size * 8 / seconds / 1e6
                table.add_row(f"{mbps:g}", f"{read:.1f}", f"{read / mbps:.0%}")
                found.append({"mbps": mbps, "read_mbps": read})
        finally:
            swift.terminate()
            swift.wait()
    console.print(table)
    return {"links": found}


def _read(network: LimitedNetwork, told: str, size: int, do: str) -> float:
    reply = subprocess.run(
        [*network.beside_client, sys.executable, "-c", READER, told, str(size), do],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(json.loads(reply.stdout)["seconds"])


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(f"{' '.join(command[:4])} failed: {done.stderr.strip()}")
