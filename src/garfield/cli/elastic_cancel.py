"""`garfield elastic cancel`: the end of a job."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from garfield.cli.elastic_shared import ClusterDirectory, cluster_of
from garfield.cli.shared import print_line


def cancel(
    jobs: Annotated[list[str], Parameter(metavar="JOB")], *, dir_: ClusterDirectory = None
) -> None:
    """End jobs; their workers leave within their grace, and the slots go to others."""
    database = cluster_of(dir_).database()
    try:
        for name in jobs:
            database.cancel(name)
            print_line(f"{name} is to end.")
    finally:
        database.close()
