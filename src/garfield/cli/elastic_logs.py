"""`garfield elastic logs`: what a job's workers print."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from garfield.cli.elastic_shared import ClusterDirectory, cluster_of
from garfield.cli.shared import print_line

if TYPE_CHECKING:
    from pathlib import Path

_LOOK_S = 0.3


def logs(
    job: Annotated[str, Parameter(metavar="JOB")],
    *,
    dir_: ClusterDirectory = None,
    follow: Annotated[
        bool, Parameter(help="Go on until the job has ended.", show_default=False)
    ] = False,
) -> None:
    """Show what a job's workers print, each line after the worker's name."""
    from garfield.elastic.local.database import newest

    cluster = cluster_of(dir_)
    database = cluster.database()
    shown: dict[Path, int] = {}
    try:
        number = newest(database.jobs(), job).number
        while True:
            is_over = not newest(database.jobs(number - 1), job).record.is_active
            for log in sorted(cluster.processes.glob(f"{number}-w*.log"), key=_count):
                shown[log] = _show(log, shown.get(log, 0), to_the_end=is_over or not follow)
            if is_over or not follow:
                return
            time.sleep(_LOOK_S)
    finally:
        database.close()


def _count(log: Path) -> int:
    return int(log.stem.rpartition("w")[2])


def _show(log: Path, at: int, *, to_the_end: bool) -> int:
    """Print whole lines from there on; where to go on."""
    member = log.stem.rpartition("-")[2]
    with log.open("rb") as file:
        file.seek(at)
        for line in file:
            if not line.endswith(b"\n") and not to_the_end:
                break  # its rest is yet to come
            print_line(f"{member} | {line.decode(errors='replace').rstrip()}")
            at += len(line)
    return at
