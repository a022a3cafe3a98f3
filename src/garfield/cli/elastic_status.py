"""`garfield elastic status`: the cluster and its jobs."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated

from cyclopts import Parameter

from garfield.cli.elastic_shared import ClusterDirectory, cluster_of
from garfield.cli.shared import AsJson, console, print_json


def status(
    *,
    dir_: ClusterDirectory = None,
    watch: Annotated[
        bool,
        Parameter(name="--watch", help="Redraw it every second until Ctrl-C.", show_default=False),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the cluster and its jobs."""
    from garfield.elastic.local.status import status_of

    cluster = cluster_of(dir_)
    if as_json:
        print_json(status_of(cluster))
        return
    from garfield.report.elastic_status import status_table

    out = console()
    if not watch:
        out.print(status_table(status_of(cluster)))
        return
    from rich.live import Live

    first = status_table(status_of(cluster))
    with suppress(KeyboardInterrupt), Live(first, console=out, auto_refresh=False) as live:
        while True:
            time.sleep(1.0)
            live.update(status_table(status_of(cluster)), refresh=True)
