"""`garfield certs`: an authority, and a certificate for every node of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from garfield.cli.shared import names, print_line
from garfield.core.errors import ConfigError


def certs(
    *,
    cluster: Annotated[
        Path | None, Parameter(metavar="FILE.toml", help="Make them for the nodes named there.")
    ] = None,
    node_names: Annotated[
        list[str] | None,
        Parameter(name="--names", help="Or for these, with commas: server-0,worker-0,worker-1."),
    ] = None,
    out: Annotated[
        Path | None, Parameter(metavar="DIR", help="Where to. (tls of the cluster's file)")
    ] = None,
    days: Annotated[float, Parameter(help="How long they are valid.")] = 365.0,
    more: Annotated[
        bool,
        Parameter(
            name="--add",
            help="Add nodes to the authority there; others stay as is.",
            show_default=False,
        ),
    ] = False,
) -> None:
    """Make certificates, so that nobody can pose as a node of the cluster.

    Each machine gets ca.pem and its own node's .pem and .key. ca.key can make new nodes: it
    stays where it was made. With --add, nodes that join later get theirs from it; of a
    cluster's file, those that have none yet.
    """
    from garfield.transport.certs import add, make

    roles, directory = _wanted(cluster, node_names, out)
    if more:
        if cluster is not None:
            roles = {n: role for n, role in roles.items() if not (directory / f"{n}.pem").exists()}
        until = add(directory, roles, valid_days=days)
        made = ", ".join(roles) or "nobody: all have one"
        print_line(f"New certificates in {directory}/, until {until:%Y-%m-%d}, for {made}.")
    else:
        make(directory, roles, valid_days=days)
        print_line(f"{len(roles)} certificates and their authority are in {directory}/.")
    print_line("Give each machine ca.pem and the .pem and .key of its own nodes; keep ca.key here.")


def _wanted(
    cluster: Path | None, texts: list[str] | None, out: Path | None
) -> tuple[dict[str, str], Path]:
    """Role by name, and where the files go."""
    if (cluster is None) == (texts is None):
        raise ConfigError("Say for whom: either --cluster FILE.toml or --names.")
    if cluster is None:
        roles = {name: name.rpartition("-")[0] or "node" for name in names(texts or [])}
        tls = None
    else:
        from garfield.launch.cluster import read_cluster

        found = read_cluster(cluster)
        roles, tls = found.roles, found.tls
    directory = out or tls
    if directory is None:
        raise ConfigError("Say where to put them: --out DIR.")
    return roles, directory
