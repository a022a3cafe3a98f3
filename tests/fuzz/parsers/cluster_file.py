"""A cluster's file, as an operator may write it, or whoever writes it in the operator's name."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from garfield.apps.settings import all_settings
from garfield.core.config import tomllib
from garfield.core.errors import GarfieldError
from garfield.launch.cluster import read_cluster
from garfield.transport.addresses import check_address
from tests.fuzz.target import fuzzed

WHOLE = """\
tls = "certs"

[settings]
app = "ssmw"
workers = 3
steps = 20
gar = "median"
exclude = ["worker-2"]

[nodes]
server-0 = "127.0.0.1:7000"
worker-0 = "127.0.0.1:7001"
worker-1 = "[::1]:7002"
worker-2 = "host-2.example:7003"
"""

_ODD: list[Any] = [
    "", "no", "true", "a\x00b", "../..", "a.py", "x" * 300, "²", "[/b]", "-", 0, 1, -1, 3, 2**31,
    2**63, 10**30, 0.5, -0.0, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"), True, False,
    [], {},
    ["mine.py"], [1], [[]], [""], {"x": 1}, ["worker-0"], "worker-0,worker-1", "median", "krum",
    "multi-krum(m=1.5)", "multi-krum(m=[1,2])", "bucketing(s='x')+median",
    "centered-clipping(tau='a')", "nnm+median", "median()",
    "average(", "msmw", "decentralized", "draco", "aggregathor",
    "guanyu", "liubei", "vanilla", "reverse", "reverse, withhold(from=server-1)",
    "noise(sigma=nan)",
    "127.0.0.1:7001", "127.0.0.1:99999", "127.0.0.1:²", ":1", "unix:/x", "[::]:1",
]  # fmt: skip
_values = st.sampled_from(_ODD) | st.text(max_size=12) | st.integers() | st.floats()
_names = [setting.name for setting in all_settings()]
_keys = st.sampled_from(
    [*(("settings", name) for name in _names), *(("settings", n.replace("_", "-")) for n in _names)]
    + [("settings", group) for group in ("rounds", "faults", "nodes", "learning", "draco", "x")]
    + [("nodes", name) for name in ("server-0", "worker-0", "worker-3", "worker-99", "node-0", "")]
    + [("", key) for key in ("tls", "insecure", "load", "settings", "nodes", "noses", "")]
)


def _written(changes: list[tuple[tuple[str, str], Any]]) -> bytes:
    content: dict[str, Any] = tomllib.loads(WHOLE)
    for (table, key), value in changes:
        within = content.get(table) if table else content
        if isinstance(within, dict):
            within[key] = value
    return "\n".join(
        f"{json.dumps(key)} = {_toml(value)}" for key, value in content.items()
    ).encode("utf-8", "replace")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value) if isinstance(value, float) else json.dumps(value)


def check(data: bytes) -> None:
    """One is refused in a readable sentence, or everything in it is of its type."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "cluster.toml"
        path.write_bytes(data)
        try:
            cluster = read_cluster(path)
        except GarfieldError as refusal:
            assert str(refusal).strip()
            return
    content = {key.replace("-", "_"): v for key, v in tomllib.loads(data.decode()).items()}
    assert cluster.insecure is content.get("insecure", False)
    assert cluster.tls is None or isinstance(content["tls"], str)
    for name in cluster.roles:
        check_address(name, cluster.nodes[name])


fuzzed("cluster file, byte by byte", begin_from=[WHOLE.encode()])(check)
fuzzed(
    "cluster file, value by value",
    begin_from=[WHOLE.encode()],
    inputs=st.lists(st.tuples(_keys, _values), max_size=4).map(_written),
)(check)
