"""`garfield fedgan serve`: one more server of a training, to take over if the first is gone."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from garfield.cli.exit_codes import DONE
from garfield.cli.shared import print_line


def serve(
    *,
    state: Annotated[str, Parameter(help="Where the training commits: postgresql://… or a file.")],
    run: Annotated[str, Parameter(help="Its name: the last part of the first server's --out.")],
    listen: Annotated[str, Parameter(metavar="HOST:PORT", help="Where devices reach this one.")],
    name: Annotated[str, Parameter(help="Which server this is, such as server-1.")] = "server-1",
    certificates: Annotated[
        Path | None,
        Parameter(metavar="DIR", help="Its certificate, by garfield certs. (none, on loopback)"),
    ] = None,
) -> int:
    """Wait to lead a training, and lead it when its server is gone.

    Settings, networks and devices are what the state database says. Servers of one host may share
    an SQLite file; those of several need PostgreSQL. Ends with the training, or on Ctrl-C.
    """
    from garfield.fedgan.nodes.apart import serve_apart
    from garfield.fedgan.state import open_state_database
    from garfield.transport.addresses import check_address

    check_address("--listen", listen)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    database = open_state_database(state, run)
    try:
        serve_apart(name, listen, database, certificates=certificates, ended=ended, tell=print_line)
    finally:
        database.close()
    return DONE
