"""`garfield node`: one node of a cluster over several machines."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from garfield.launch.checkpoint import Keeping
    from garfield.launch.cluster import Cluster
    from garfield.report.run_directory import RunDirectory

_WORKERS_SPEAK_EVERY_S = 5.0


def node(
    cluster: Annotated[
        Path, typer.Option(metavar="FILE.toml", help="Its settings, nodes and certificates.")
    ],
    name: Annotated[str, typer.Option(help="Which of its nodes to be, such as worker-3.")],
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where to listen, if not where peers connect to."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep metrics and checkpoints of a server.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Go on from a server's checkpoints there.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="For computing. (all cores of the machine)")
    ] = None,
) -> None:
    """Run one node of a cluster; the others may be there already, or come later.

    A server ends when its last step is done, a worker when its servers have been silent for
    give_up_s after that. One that is started again catches up with its peers. SIGTERM ends a
    node in good order. Exit codes: 0 done or told to end, 1 peers failed it, 2 a setting is
    wrong.
    """
    from garfield.launch.cluster import read_cluster, run_node
    from garfield.launch.one_node import use_threads

    found = read_cluster(cluster)
    directory, keeping = _kept(found, name, out, resume)
    if threads is not None:
        use_threads(threads)
    printer = Printer(found.settings.steps, directory)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        run_node(found, name, printer.tell, listen=listen, keeping=keeping)
    finally:
        if directory is not None:
            directory.__exit__()
    if printer.diverged:
        raise typer.Exit(1)


class Printer:
    """Events as lines, not too many of them."""

    def __init__(self, total: int, directory: RunDirectory | None) -> None:
        self._total, self._directory = total, directory
        self._spoke_at = time.monotonic()
        self.diverged = False

    def tell(self, event: Mapping[str, Any]) -> None:
        from garfield.launch.cluster import line

        if self._directory is not None:
            self._directory.record(event)
        self.diverged |= event["event"] == "diverged"
        if event["event"] == "worker":
            often = time.monotonic() - self._spoke_at < _WORKERS_SPEAK_EVERY_S
            if often and event["step"] < self._total:
                return
            self._spoke_at = time.monotonic()
        text = line(event, self._total)
        if text is not None:
            typer.echo(text)


def _kept(
    cluster: Cluster, name: str, out: Path | None, resume: Path | None
) -> tuple[RunDirectory | None, Keeping | None]:
    """Where a server's record goes, and where it goes on from."""
    from garfield.launch.checkpoint import Keeping
    from garfield.report.run_directory import RunDirectory

    path = resume or out
    if path is None or name not in cluster.settings.server_names:
        return None, None
    directory = RunDirectory(path)
    keeping = Keeping(directory.checkpoints)
    if resume is None:
        directory.check_new()
    else:
        directory.check_old()
        keeping = keeping.resumed([name], [name])
    directory.open(asdict(cluster.settings))
    if keeping.step:
        directory.record({"event": "resumed", "step": keeping.step})
    return directory, keeping
