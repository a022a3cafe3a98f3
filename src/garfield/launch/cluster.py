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

A worker that nobody can call, behind NAT for one, has `"dials-in"` in the place of an
address: it opens links to its servers, and they ask over these.

Every machine has the same file. Nodes may start in any order: whoever is not
there yet is asked again; who is excluded is neither asked nor answered. Without
certificates a node listens on loopback only, unless the file says `insecure = true`,
of which every start warns.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from garfield.apps.own_parts import anchored
from garfield.apps.settings import Settings, all_settings, from_toml
from garfield.core.config import flattened, named, read_toml, settings_of
from garfield.core.errors import ConfigError, UnknownName
from garfield.core.events import Event, Sink
from garfield.launch.node import run_node
from garfield.launch.node_checkpoints import NodeCheckpoints
from garfield.launch.node_transport import transport_of
from garfield.launch.wait_notices import NoticedWaits
from garfield.nodes.server import Server
from garfield.nodes.worker import Worker
from garfield.report.scores import score_of
from garfield.runs.user_files import without_files
from garfield.transport.addresses import check_address, check_listen, is_loopback
from garfield.transport.identity import DIALS_IN, PeerAddress


@dataclass(frozen=True)
class Trust:
    """How the nodes of a cluster know each other."""

    tls: str | None = None
    """Where their certificates are, beside the cluster's file."""
    insecure: bool = False
    """Listen beyond loopback without certificates, where anybody may claim any name."""


_TRUST = named(settings_of(Trust))
_EXAMPLES = {
    "settings": "a table [settings]", "nodes": "a table [nodes]", "load": 'load = ["mine.py"]',
    "tls": 'tls = "certs"', "insecure": "insecure = true or insecure = false",
}  # fmt: skip
"""Every key of a cluster's file, as it is written."""
_MOST_MISSING = 1000  # nodes that a refusal would still name one by one


@dataclass(frozen=True)
class Cluster:
    """The nodes of a cluster, where each one listens, and what they train."""

    settings: Settings
    nodes: Mapping[str, str]
    """host:port of each node, by name, or `DIALS_IN`."""
    tls: Path | None = None
    insecure: bool = False
    path: Path | None = None
    """The file that says so."""

    @property
    def roles(self) -> dict[str, str]:
        """Role of each node, as its certificate must say."""
        s = self.settings
        return {name: s.application.role(s, name) for name in (*s.server_names, *s.worker_names)}

    @property
    def called(self) -> list[str]:
        """Who listens; the others dial in."""
        return [name for name in self.roles if self.nodes[name] != DIALS_IN]

    def check_name(self, name: str) -> None:
        """Refuse one that does not take part."""
        if name in self.settings.nodes.exclude:
            raise ConfigError(f"{name} is excluded from this cluster by its settings.")
        if name not in self.roles:
            raise UnknownName("a node of this cluster", name, self.roles)


def read_cluster(path: Path) -> Cluster:
    """Read a cluster's file; its nodes must be just those that the settings speak of."""
    content = read_toml(path)
    for key in content:
        if key not in _EXAMPLES:
            raise UnknownName(f"a key of {path}", key, _EXAMPLES)
    trust = _trust(path, content)
    content = without_files(content, path.parent)
    given = flattened(_table(content, "settings", path), all_settings())
    settings, nodes = from_toml(anchored(given, path.parent)), _table(content, "nodes", path)
    _check_count(path, settings, len(nodes))
    settings.check()
    if settings.simulate or settings.nodes.transport != "grpc":
        raise ConfigError(
            f"{path}: the nodes of a cluster are real and talk by gRPC. Remove the settings "
            "simulate and transport."
        )
    tls = None if trust.tls is None else path.parent / trust.tls
    cluster = Cluster(settings, nodes, tls, trust.insecure, path)
    _check_nodes(path, nodes, list(cluster.roles), settings.nodes.exclude)
    _check_dialling(path, cluster)
    return cluster


def run_cluster_node(
    cluster: Cluster, name: str, sink: Sink, *, listen: str | None = None,
    checkpoints: NodeCheckpoints | None = None,
) -> None:  # fmt: skip
    """Run that node to its end; QuorumError if its peers fail it.

    After its last step it stays for `give_up_s`: slower peers may still want its last vector.
    A server that is alone ends at once if all its workers took part in the last step.
    """
    settings, called = cluster.settings, cluster.called
    cluster.check_name(name)
    if name in called:
        listen = cluster.nodes[name] if listen is None else listen
        _check_listening(cluster, name, listen)
    elif listen is not None:
        raise ConfigError(
            f"{name} dials in, so it listens nowhere. Leave out --listen, or give it an address "
            f"in {cluster.path or 'the cluster file'}."
        )
    peers = {peer: PeerAddress(cluster.nodes[peer], role) for peer, role in cluster.roles.items()}
    transport = transport_of(settings)(
        name, peers, listen=listen, credentials=_credentials(cluster, name),
        insecure_ok=cluster.insecure, dials=() if listen else settings.server_names,
        takes_links=listen is not None and len(called) < len(peers),
    )  # fmt: skip

    def stay(node: Server | Worker) -> None:
        if isinstance(node, Server) and len(node.servers) == 1 and _all_heard(node):
            return  # its workers are done as well
        time.sleep(settings.rounds.give_up_s)  # slower peers may still want our last vector

    noticed = NoticedWaits(transport, sink, settings.rounds.timeout_s)
    try:
        run_node(
            settings, name, noticed, sink, checkpoints or NodeCheckpoints(),
            listening=lambda node: sink(
                {"event": "address", "node": name, "address": transport.address}
            ),
            stay=stay, patient=True,
        )  # fmt: skip
    finally:
        transport.close()


def _all_heard(server: Server) -> bool:
    """Whether all its workers took part in its last step."""
    return server.heard is None or not server.heard.silent


def line(event: Event, total: int) -> str | None:
    """Put an event in words, if it is worth a line."""
    name = event["node"]
    match event["event"]:
        case "address":
            if event["address"] == DIALS_IN:
                return f"{name} dials its servers"
            return f"{name} listens on {event['address']}"
        case "done":
            return f"{name} is done at step {event['step']}"
        case "diverged" | "waiting" | "waits" | "no-velocity" | "went-back":
            return str(event["error"])
        case "worker":
            return f"{name}: step {event['step']}/{total}"
        case "step" | "evaluated" if (found := score_of(event)) is not None:
            said = f"{found.metric} {found.shown}, loss {event['loss']:.3g}"
            return f"{name}: step {event['step']}/{total}, {said}"
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


def _trust(path: Path, content: Mapping[str, Any]) -> Trust:
    """What the file says of certificates; a value of another type is refused."""
    given = {}
    for key, setting in _TRUST.items():
        if key in content:
            try:
                given[key] = setting.typed(content[key])
            except ConfigError:
                raise _wrong_type(path, key, content[key]) from None
    return Trust(**given)


def _wrong_type(path: Path, key: str, value: object) -> ConfigError:
    """Name the key, what was given and of which type, and what to write."""
    given = next((word for kind, word in _TYPES.items() if type(value) is kind), "a date or time")
    return ConfigError(f"{path}: {key} is {given}, {value!r}. Write {_EXAMPLES[key]}.")


_TYPES = {
    bool: "a truth value", str: "a text", int: "a whole number", float: "a number",
    list: "a list", dict: "a table",
}  # fmt: skip
"""What a value of a TOML file may be."""


def _table(content: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    if key not in content:
        raise ConfigError(f"{path} needs a table [{key}].")
    table = content[key]
    if not isinstance(table, dict):
        raise _wrong_type(path, key, table)
    return table


def _check_count(path: Path, settings: Settings, listed: int) -> None:
    """Refuse a slip of the keyboard before anybody counts to it."""
    for what, count in (("workers", settings.nodes.workers), ("servers", settings.nodes.servers)):
        if count > listed + _MOST_MISSING:
            raise ConfigError(
                f"{path}: the settings speak of {count} {what}, and [nodes] lists {listed} nodes. "
                f"Correct {what}, or list them all."
            )


def _check_listening(cluster: Cluster, name: str, listen: str) -> None:
    """Refuse to take names on trust from other hosts, unless the cluster's file says so."""
    check_listen(name, listen)
    if cluster.tls is None and not cluster.insecure and not is_loopback(listen):
        raise ConfigError(
            f"{name} would listen on {listen} without certificates, where anybody may claim any "
            f'name. Make them with garfield certs, and write tls = "certs" at the top of '
            f"{cluster.path or 'the cluster file'}; or write insecure = true there."
        )


def _check_nodes(
    path: Path, nodes: Mapping[str, Any], expected: list[str], excluded: Sequence[str]
) -> None:
    """Those that are excluded may still be listed."""
    for name, address in nodes.items():
        if name not in expected and name not in excluded:
            raise UnknownName("a node that the settings speak of", name, expected)
        if address != DIALS_IN:
            check_address(f"{path}: {name}", address)
    missing = [name for name in expected if name not in nodes]
    if missing:
        raise ConfigError(f"{path} does not say where these listen: {', '.join(missing)}.")
    addresses = sorted(address for address in nodes.values() if address != DIALS_IN)
    shared = [a for a, b in pairwise(addresses) if a == b]
    if shared:
        raise ConfigError(f"{path}: two nodes cannot both listen on {shared[0]}.")


def _check_dialling(path: Path, cluster: Cluster) -> None:
    """Refuse whoever dials in and has to be called all the same."""
    for name in sorted(set(cluster.roles) - set(cluster.called)):
        if (role := cluster.roles[name]) != "worker":
            raise ConfigError(
                f'{path}: {name} is "{DIALS_IN}", which only workers may be: a {role} has to be '
                "called. Give it an address."
            )
        if cluster.settings.lossy_links is not None:
            raise ConfigError(
                f'{path}: {name} is "{DIALS_IN}", and on lossy links vectors travel as datagrams, '
                "which need an address. Give it one, or make no link lossy."
            )
