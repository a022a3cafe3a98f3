"""`garfield elastic down`: the end of the cluster."""

from __future__ import annotations

from garfield.cli.elastic_shared import ClusterDirectory, cluster_of
from garfield.cli.shared import print_line


def down(*, dir_: ClusterDirectory = None) -> None:
    """End the cluster: its daemon, and all workers.

    Jobs that are not done are kept, with their checkpoints, and go on when it is up again. It
    works also where the daemon was killed, and workers went on.
    """
    from garfield.elastic.local.daemon import take_down

    cluster = cluster_of(dir_)
    database = cluster.database()  # refuses where there is none
    had_daemon = cluster.end()
    left = take_down(cluster)
    active = sum(job.record.is_active for job in database.jobs())
    database.close()
    print_line(_told(had_daemon, left))
    if active:
        print_line(f"{active} jobs are kept, and go on with: garfield elastic up")


def _told(had_daemon: bool, left: int) -> str:
    if had_daemon:
        return "The cluster is down."
    return f"No daemon ran. {left} workers went on, and have ended." if left else "No cluster ran."
