"""One node in a process of its own: build it, run it, tell the launcher.

The launcher's pipe carries JSON both ways: up goes the address, then events;
down comes the table of everybody's addresses, again whenever a node has been
restarted. A node whose launcher is gone has no reason to live: the kernel ends
it with its parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from garfield.adapters.alike import layout_of
from garfield.apps.settings import Settings
from garfield.launch.links import Link
from garfield.launch.node_transport import transport_of
from garfield.launch.server_checkpoints import Keeping
from garfield.launch.user_files import load
from garfield.runs.heap import keep_heap
from garfield.runs.lifeline import die_with_parent
from garfield.runs.threads import use_threads


@dataclass(frozen=True)
class Started:
    """What the launcher gives a node besides the settings."""

    threads: int = 1
    keeping: Keeping = field(default_factory=Keeping)
    files: tuple[Path, ...] = ()
    """Of the user's, to be loaded first."""


def run_node(
    settings: dict[str, Any], name: str, pipe: Connection, link: Link, started: Started
) -> None:
    """The main function of a node's process."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides what Ctrl-C means
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    channel = Channel(pipe)
    try:
        for path in started.files:
            load(path)
        _run(Settings.of(**settings), name, channel, link, started)
    except Exception as failure:
        message = {"event": "failed", "node": name, "error": str(failure)}
        channel.send({**message, "trace": traceback.format_exc()})
        raise SystemExit(1) from None


class Channel:
    """JSON over a pipe of the launcher's."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def send(self, event: Any) -> None:
        self._pipe.send_bytes(json.dumps(event).encode())

    def listen(self, heard: Callable[[Any], None]) -> None:
        """Call `heard` with whatever the launcher says, from a thread of its own."""

        def forever() -> None:
            while True:
                try:
                    heard(json.loads(self._pipe.recv_bytes()))
                except (EOFError, OSError):
                    os._exit(1)  # the launcher is gone, and this process goes with it

        threading.Thread(target=forever, daemon=True, name="garfield-launcher").start()


def _run(settings: Settings, name: str, channel: Channel, link: Link, started: Started) -> None:
    from garfield.launch import one_node
    from garfield.nodes.worker import Worker
    from garfield.transport.connect import role_of
    from garfield.transport.identity import Peer

    keep_heap()
    use_threads(started.threads, [settings.framework_of(name)])
    peers: dict[str, Peer] = {}
    transport = _transport(settings, name, link, peers)
    node = one_node.build(settings, name, transport, started.keeping)
    introduced = threading.Event()

    def meet(table: Mapping[str, str]) -> None:
        peers.update({peer: Peer(address, role_of(peer)) for peer, address in table.items()})
        introduced.set()

    channel.listen(meet)
    channel.send({
        "event": "address", "node": name, "address": transport.address,
        "layout": layout_of(node.model),
    })  # fmt: skip
    introduced.wait()
    stay = signal.pause  # until the launcher ends us: peers may still want our last vector
    if isinstance(node, Worker):
        one_node.run_worker(node, settings, channel.send, linger=stay)
    else:
        one_node.run_server(node, settings, channel.send, started.keeping)
        stay()


def _transport(settings: Settings, name: str, link: Link, peers: Mapping[str, Any]) -> Any:
    if settings.transport == "grpc":
        return link.transport(name, peers, transport_of(settings))
    from garfield.transport.collectives import CollectiveTransport

    members = (*settings.server_names, *settings.worker_names)
    group: dict[str, Any] = {"backend": settings.transport, "give_up_s": settings.give_up_s}
    return CollectiveTransport(name, members, peers, **group)
