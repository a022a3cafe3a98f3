"""What the commands about a local cluster share: which one it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter

if TYPE_CHECKING:
    from garfield.elastic.local.cluster import Cluster

ClusterDirectory: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name="--dir",
        metavar="DIR",
        help="Where the cluster is kept. (~/.local/state/garfield/elastic)",
        show_default=False,
    ),
]


def cluster_of(directory: Path | None) -> Cluster:
    """The cluster that is meant."""
    from garfield.elastic.local.cluster import Cluster, default_path

    return Cluster(directory or default_path())
