"""`garfield node`: one node of a cluster over several machines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from garfield.cli.exit_codes import DONE, FAILED
from garfield.cli.shared import WholeNumber, print_line

if TYPE_CHECKING:
    from garfield.launch.node_record import NodeRecord
    from garfield.report.peer_warnings import PeerWarnings

_WORKERS_SPEAK_EVERY_S = 5.0


def node(
    *,
    cluster: Annotated[
        Path, Parameter(metavar="FILE.toml", help="Its settings, nodes and certificates.")
    ],
    name: Annotated[str, Parameter(help="Which of its nodes to be, such as worker-3.")],
    listen: Annotated[
        str | None,
        Parameter(metavar="HOST:PORT", help="Where to listen, if not where peers connect to."),
    ] = None,
    out: Annotated[
        Path | None,
        Parameter(
            metavar="DIR",
            help="Keep metrics, a summary and checkpoints there; go on with what is there.",
        ),
    ] = None,
    fresh: Annotated[
        bool, Parameter(help="Refuse an --out that holds anything.", show_default=False)
    ] = False,
    resume: Annotated[
        Path | None,
        Parameter(metavar="DIR", help="Go on with what is kept there; refuse if there is nothing."),
    ] = None,
    threads: Annotated[
        WholeNumber | None,
        Parameter(
            help="Threads that compute. (all cores of the machine)",
            validator=validators.Number(gte=1),
        ),
    ] = None,
) -> int:
    """Run one node of a cluster; the others may be there already, or come later.

    A server that is alone ends when its last step is done, every other node give_up_s later:
    slower peers may still want its last vector. One that is started again catches up with its
    peers. SIGTERM ends a node in good order. With --out it leaves its settings, metrics and a
    summary of what it knows; the same command then goes on with that, as a restart policy does.
    Exit codes: 0 done or told to end, 1 peers failed it, 2 a setting is wrong.
    """
    from garfield.launch.cluster import read_cluster, run_cluster_node
    from garfield.launch.node_record import NodeRecord
    from garfield.report.peer_warnings import PeerWarnings
    from garfield.runs.process import end_on_sigterm, keep_heap, use_threads

    found = read_cluster(cluster)
    found.check_name(name)
    if threads is not None:
        keep_heap()
        use_threads(threads, [found.settings.framework_of(name)])
    end_on_sigterm()
    for caution in found.settings.application.cautions(found.settings):
        _say(caution)
    with NodeRecord(found, name, out, resume, fresh=fresh) as record:
        for note in record.checkpoints.start.passed_over:
            _say(note)
        printer = Printer(found.settings.steps, record, PeerWarnings(name))
        try:
            run_cluster_node(
                found, name, printer.take, listen=listen, checkpoints=record.checkpoints
            )
        finally:
            printer.end()
    return FAILED if printer.diverged else DONE


def _say(text: str) -> None:
    """Print a line with the time: these are read long afterwards, beside those of other nodes."""
    print_line(f"{datetime.now():%Y-%m-%d %H:%M:%S} {text}")


class Printer:
    """Events as lines, not too many of them."""

    def __init__(self, total: int, record: NodeRecord, warnings: PeerWarnings) -> None:
        self._total, self._record, self._warnings = total, record, warnings
        self._spoke_at = time.monotonic()
        self.diverged = False

    def take(self, event: Mapping[str, Any]) -> None:
        from garfield.launch.cluster import line

        self._record.take(event)
        for warning in self._warnings.take(event):
            _say(warning)
        self.diverged |= event["event"] == "diverged"
        if event["event"] == "worker":
            often = time.monotonic() - self._spoke_at < _WORKERS_SPEAK_EVERY_S
            if often and event["step"] < self._total:
                return
            self._spoke_at = time.monotonic()
        text = line(event, self._total)
        if text is not None:
            _say(text)

    def end(self) -> None:
        """Name those who lied or were silent."""
        for line in self._warnings.ended():
            _say(line)
