"""`garfield elastic submit`: a job for the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from garfield.cli.elastic_shared import ClusterDirectory, cluster_of
from garfield.cli.shared import AsJson, print_json, print_line


def submit(
    files: Annotated[
        list[Path], Parameter(metavar="JOB.toml", help="What to train, and with what.")
    ],
    *,
    dir_: ClusterDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Give the cluster a job to train.

    The file says what each worker runs, and what the job asks for:

    name = "digits"; command = ["python", "train.py"]; min-workers = 1; max-workers = 4; batch = 64
    """
    from garfield.elastic.local.job_file import read_job_file

    cluster = cluster_of(dir_)
    database = cluster.database()
    try:
        jobs = [read_job_file(file) for file in files]  # all, before one is submitted
        kept = [database.submit(job) for job in jobs]
    finally:
        database.close()
    pid = cluster.daemon()
    if as_json:
        print_json([{"job": job.file.name, "number": job.number} for job in kept])
        return
    for job in kept:
        print_line(f"{job.file.name} is in the queue.")
    if pid is None:
        print_line("No daemon runs: it starts once there is one again (garfield elastic up).")
