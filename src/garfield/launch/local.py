"""Run a function as every node of a cluster on this machine: for examples and first tries.

Each node is a process of its own with a transport of its own; they find each
other through unix sockets in a directory that only this user can read. When the
function of the first node returns, the others are ended.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from garfield.core.errors import GarfieldError
from garfield.runs.heap import keep_heap
from garfield.runs.lifeline import die_with_parent
from garfield.runs.threads import imported, preload_modules, use_threads
from garfield.transport.connect import connect
from garfield.transport.contract import Transport

Main = Callable[[str, Transport], Any]
STOP_S = 5.0


def run_locally(main: Main, names: Sequence[str], *, preload: Sequence[str] | None = None) -> None:
    """Call main(name, transport) in a process for each name, until the first one's returns.

    `main` must be importable: a function at the top of a module or script, which starts the
    nodes under ``if __name__ == "__main__":``. `preload` are modules to import once for all
    nodes; if not given, the frameworks that the caller has imported.
    """
    context = multiprocessing.get_context("forkserver")
    first = "garfield.runs.forkserver_lifeline"  # the forkserver ends with us, and nodes with it
    preloaded = preload_modules(imported()) if preload is None else preload
    context.set_forkserver_preload([first, *preloaded, "garfield.launch.local"])
    with tempfile.TemporaryDirectory(prefix="garfield-") as directory:
        (Path(directory) / "vectors").mkdir(mode=0o700)
        nodes = {name: f"unix:{Path(directory) / name}" for name in names}
        children = [
            context.Process(target=_node, args=(main, name, nodes), name=name, daemon=True)
            for name in names
        ]
        for child in children:
            child.start()
        try:
            children[0].join()
        finally:
            for child in children:
                child.terminate()
            for child in children:
                child.join(STOP_S)
                if child.is_alive():
                    child.kill()
                    child.join()
        if children[0].exitcode:
            raise GarfieldError(f"{names[0]} failed; what it said stands above.")


def _node(main: Main, name: str, nodes: dict[str, str]) -> None:
    die_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    keep_heap()
    use_threads(1, imported())  # nodes share the cores: more would wait for each other
    directory = Path(nodes[name].removeprefix("unix:")).parent
    transport = connect(name, nodes, same_host=directory / "vectors")
    try:
        main(name, transport)
        if name != next(iter(nodes)):
            signal.pause()  # slower nodes may still want what this one published last
    finally:
        transport.close()
