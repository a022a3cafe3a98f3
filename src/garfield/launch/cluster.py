"""One node of a cluster over several machines, started by hand or by an engine.

    tls = "certs"                   # made by `garfield certs`; beside this file
    load = ["mine.py"]              # your own rules and attacks, if any; beside it too

    [settings]                      # as for `garfield train`
    app = "ssmw"
    workers = 3
    exclude = ["worker-2"]          # whom to leave out: after it was seen to lie, say

    [nodes]                         # where each one listens
    server-0 = "10.0.0.1:7000"
    worker-0 = "10.0.0.2:7000"

Every machine has the same file. Nodes may start in any order: whoever is not
there yet is asked again; who is excluded is neither asked nor answered. Without
certificates a node listens on loopback only, unless the file says `insecure = true`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from garfield.apps.settings import Settings, from_toml
from garfield.core.config import read_toml
from garfield.core.errors import ConfigError, UnknownName
from garfield.core.events import Event, Sink
from garfield.launch.node import run_node
from garfield.launch.node_transport import transport_of
from garfield.launch.server_checkpoints import ServerCheckpoints
from garfield.launch.user_files import without_files

_KEYS = ("settings", "nodes", "tls", "insecure", "load")


@dataclass(frozen=True)
class Cluster:
    """The nodes of a cluster, where each one listens, and what they train."""

    settings: Settings
    nodes: Mapping[str, str]
    """host:port of each node, by name."""
    tls: Path | None = None
    insecure: bool = False

    @property
    def roles(self) -> dict[str, str]:
        """Role of each node, as its certificate must say."""
        s = self.settings
        return {name: s.application.role(s, name) for name in (*s.server_names, *s.worker_names)}

    def check_name(self, name: str) -> None:
        """Refuse one that does not take part."""
        if name in self.settings.nodes.exclude:
            raise ConfigError(f"{name} is excluded from this cluster by its settings.")
        if name not in self.roles:
            raise UnknownName("a node of this cluster", name, self.roles)


def read_cluster(path: Path) -> Cluster:
    """Read a cluster's file; its nodes must be just those that the settings speak of."""
    content = without_files(read_toml(path), path.parent)
    for key in content:
        if key not in _KEYS:
            raise UnknownName(f"a key of {path}", key, _KEYS)
    settings = from_toml(_table(content, "settings", path)).check()
    nodes = _table(content, "nodes", path)
    tls = content.get("tls")
    if settings.simulate or settings.nodes.transport != "grpc":
        raise ConfigError(
            f"{path}: the nodes of a cluster are real and talk by gRPC. Remove the settings "
            "simulate and transport."
        )
    cluster = Cluster(
        settings, nodes, None if tls is None else path.parent / str(tls),
        bool(content.get("insecure", False)),
    )  # fmt: skip
    _check_nodes(path, nodes, list(cluster.roles), settings.nodes.exclude)
    return cluster


def run_cluster_node(
    cluster: Cluster, name: str, sink: Sink, *, listen: str | None = None,
    checkpoints: ServerCheckpoints | None = None,
) -> None:  # fmt: skip
    """Run that node to its end; QuorumError if its peers fail it.

    After its last step it stays for `give_up_s`: slower peers may still want its last vector.
    A server that is alone has given all its workers what they need, and ends at once.
    """
    from garfield.transport.identity import PeerAddress

    settings = cluster.settings
    cluster.check_name(name)
    peers = {peer: PeerAddress(cluster.nodes[peer], role) for peer, role in cluster.roles.items()}
    transport = transport_of(settings)(
        name, peers, listen=listen or cluster.nodes[name], credentials=_credentials(cluster, name),
        insecure_ok=cluster.insecure,
    )  # fmt: skip

    def stay() -> None:
        if name not in settings.server_names or len(settings.server_names) > 1:
            time.sleep(settings.rounds.give_up_s)  # slower peers may still want our last vector

    try:
        run_node(
            settings, name, transport, sink, checkpoints or ServerCheckpoints(),
            listening=lambda node: sink(
                {"event": "address", "node": name, "address": transport.address}
            ),
            stay=stay, patient=True,
        )  # fmt: skip
    finally:
        transport.close()


def line(event: Event, total: int) -> str | None:
    """Put an event in words, if it is worth a line."""
    name = event["node"]
    match event["event"]:
        case "address":
            return f"{name} listens on {event['address']}"
        case "done":
            return f"{name} is done at step {event['step']}"
        case "diverged" | "waiting":
            return str(event["error"])
        case "worker":
            return f"{name}: step {event['step']}/{total}"
        case "step" | "evaluated" if "accuracy" in event:
            accuracy, loss = 100 * event["accuracy"], event["loss"]
            return (
                f"{name}: step {event['step']}/{total}, accuracy {accuracy:.1f} %, loss {loss:.3g}"
            )
    return None


def _credentials(cluster: Cluster, name: str) -> Any:
    if cluster.tls is None:
        return None
    from garfield.transport import certs

    credentials = certs.load(cluster.tls, name)
    if credentials.identity.role != cluster.roles[name]:
        raise ConfigError(
            f"The certificate of {name} says that it is a {credentials.identity.role}, and in "
            f"this cluster it is a {cluster.roles[name]}. Make certificates anew: garfield certs."
        )
    return credentials


def _table(content: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    table = content.get(key)
    if not isinstance(table, dict):
        raise ConfigError(f"{path} needs a table [{key}].")
    return table


def _check_nodes(
    path: Path, nodes: Mapping[str, Any], expected: list[str], excluded: Sequence[str]
) -> None:
    """Those that are excluded may still be listed."""
    for name, address in nodes.items():
        if name not in expected and name not in excluded:
            raise UnknownName("a node that the settings speak of", name, expected)
        host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"{path}: {name} needs an address like 10.0.0.2:7000, got {address!r}."
            )
    missing = [name for name in expected if name not in nodes]
    if missing:
        raise ConfigError(f"{path} does not say where these listen: {', '.join(missing)}.")
    shared = [a for a, b in pairwise(sorted(nodes.values())) if a == b]
    if shared:
        raise ConfigError(f"{path}: two nodes cannot both listen on {shared[0]}.")
