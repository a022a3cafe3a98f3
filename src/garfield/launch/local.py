"""Run a function as every node of a cluster on this machine: for examples and first tries.

Each node is a process of its own with a transport of its own; they find each
other through unix sockets in a directory that only this user can read. When the
function of the first node returns, the others are ended.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from garfield.core.errors import NodeFailed
from garfield.runs.process import imported, preload_modules, use_threads
from garfield.runs.scratch import scratch_directory
from garfield.runs.supervised import Channel
from garfield.runs.supervisor import Supervisor
from garfield.transport.connect import connect
from garfield.transport.contract import Transport

Main = Callable[[str, Transport], Any]


def run_locally(main: Main, names: Sequence[str], *, preload: Sequence[str] | None = None) -> None:
    """Call main(name, transport) in a process for each name, until the first one's returns.

    `main` must be importable: a function at the top of a module or script, which starts the
    nodes under ``if __name__ == "__main__":``. `preload` are modules to import once for all
    nodes; if not given, the frameworks that the caller has imported.
    """
    ahead = preload_modules(imported()) if preload is None else preload
    first = names[0]
    with (
        scratch_directory() as directory,
        Supervisor(preload=[*ahead, "garfield.launch.local"]) as supervisor,
    ):
        (directory / "vectors").mkdir(mode=0o700)
        nodes = {name: f"unix:{directory / name}" for name in names}
        for name in names:
            supervisor.start(name, _run_process, main, nodes, name == first)
        while supervisor.is_running(first):
            supervisor.events()
    if supervisor.exit_codes[first]:
        raise NodeFailed(f"{first} failed; what it said stands above.")


def _run_process(channel: Channel, main: Main, nodes: Mapping[str, str], ends: bool) -> None:
    """Be one node, in a process of its own, which `ends` with its function or stays."""
    use_threads(1, imported())  # nodes share the cores: more would wait for each other
    directory = Path(nodes[channel.name].removeprefix("unix:")).parent
    transport = connect(channel.name, nodes, same_host=directory / "vectors")
    try:
        main(channel.name, transport)
        if not ends:
            signal.pause()  # slower nodes may still want what this one published last
    except Exception:
        traceback.print_exc()  # it is the user's own function
        raise
    finally:
        transport.close()
