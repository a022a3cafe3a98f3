"""Several machines in one: network namespaces, each with an address on a common switch.

The switch is a bridge in a namespace of its own, so that nothing of the real network is touched.
Each host's link has the speed of a slow one: what nodes do then takes the time of the network,
and about the same on a busy machine as on an idle one.
"""

import os
import shutil
import subprocess

import pytest

RATE = "20mbit"


class Hosts:
    """Use as a context: leaving it takes all of them down."""

    def __init__(self, count):
        self.count = count
        self._prefix = f"garfield-{os.getpid()}"
        self._made = []

    def __enter__(self):
        if shutil.which("ip") is None or shutil.which("tc") is None:
            pytest.skip("Namespaces need the commands ip and tc (iproute2).")
        if os.geteuid() != 0:
            pytest.skip("Only root may make network namespaces.")
        try:
            self._build()
        except subprocess.CalledProcessError as problem:
            self.__exit__()
            pytest.skip(f"Network namespaces are not to be had here: {problem.stderr.strip()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        self._made.clear()

    def address(self, host):
        return f"10.83.0.{host + 1}"

    def inside(self, host):
        """What to put before a command that is to run there; it keeps its process id."""
        return ["ip", "netns", "exec", self._name(host)]

    def unplug(self, host):
        self._at_switch("link", "set", f"port{host}", "down")

    def plug(self, host):
        self._at_switch("link", "set", f"port{host}", "up")

    def _build(self):
        self._make("switch")
        self._at_switch("link", "add", "bridge", "type", "bridge")
        self._at_switch("link", "set", "bridge", "up")
        for host in range(self.count):
            name, port = self._make(host), f"port{host}"
            self._at_switch("link", "add", port, "type", "veth", "peer", "eth0", "netns", name)
            self._at_switch("link", "set", port, "master", "bridge", "up")
            for device in ("lo", "eth0"):
                _run("ip", "-n", name, "link", "set", device, "up")
            _run("ip", "-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            shape = ("tbf", "rate", RATE, "burst", "32kb", "latency", "400ms")
            _run("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", *shape)

    def _make(self, host):
        name = self._name(host)
        _run("ip", "netns", "add", name)
        self._made.append(name)
        return name

    def _name(self, host):
        return f"{self._prefix}-{host}"

    def _at_switch(self, *words):
        _run("ip", "-n", self._name("switch"), *words)


def _run(*words):
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=30)
