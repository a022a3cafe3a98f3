"""Run every node of a training run as a process of this machine.

Each node listens where its link says and tells the launcher; once all have, everybody
gets the table of addresses. `garfield.runs.supervisor` starts and ends the processes.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal
from zlib import crc32

from garfield.adapters.alike import check_alike
from garfield.apps.settings import Settings
from garfield.core.errors import NodeFailed
from garfield.core.events import Event, Sink
from garfield.launch.links import Link, LinkKind, link
from garfield.launch.node import NodeOptions, run_node
from garfield.launch.node_transport import transport_of
from garfield.launch.unanswered import ANSWER_S, TURN_S, Unanswered
from garfield.nodes.server import Server
from garfield.nodes.worker import Worker
from garfield.runs.process import preload_modules, seed_draws, use_threads
from garfield.runs.supervised import Channel
from garfield.runs.supervisor import Supervisor
from garfield.runs.user_files import load

START_S = 120.0  # importing torch or TensorFlow on a busy machine
PRELOAD = ["garfield.launch.processes", "garfield.transport.grpc.transport"]


@dataclass(frozen=True)
class Fault:
    """Something done to a node when some server reaches a step: for tests and drills."""

    node: str
    step: int
    kind: Literal["kill", "freeze", "thaw", "restart"] = "kill"


class Processes:
    """The nodes of one run. Use as a context: leaving it ends every process."""

    def __init__(
        self, settings: Settings, options: NodeOptions | None = None, *, by: LinkKind = "memory"
    ) -> None:
        self.settings = s = settings.check()
        self._names = tuple(dict.fromkeys((*s.server_names, *s.worker_names)))
        self._options = options or NodeOptions()
        self._by = by
        self._open = ExitStack()
        self._supervisor = Supervisor(preload=[*preload_modules(s.frameworks), *PRELOAD])
        self._addresses: dict[str, str] = {}
        self._done: set[str] = set()
        self._sink: Sink = lambda event: None

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> dict[str, int]:
        """Pids of the nodes' processes, by name."""
        return self._supervisor.pids

    @property
    def exit_codes(self) -> dict[str, int | None]:
        """Exit codes of the nodes that have ended, by name."""
        return self._supervisor.exit_codes

    def start(self) -> None:
        """Start all nodes and tell each where the others are."""
        how = self._how = self._open.enter_context(link(self._by, self._names))
        for name in self._names:
            self._supervisor.start(name, _run_process, self.settings.values(), how, self._options)
        first = self._supervisor.started(START_S)
        self._addresses = {name: first[name]["address"] for name in self._names}
        check_alike({name: first[name]["layout"] for name in self._names})  # a server's first
        self._introduce()

    def run(self, sink: Sink, faults: Sequence[Fault] = ()) -> None:
        """Run until every honest server that lives has finished; all events go to `sink`."""
        self._sink, pending = sink, sorted(faults, key=lambda fault: fault.step)
        honest = self.settings.honest_servers
        unanswered = Unanswered(self._supervisor.probe)
        while waited := [name for name in honest if self._is_waited_for(name)]:
            for name, event in self._supervisor.events(TURN_S):
                self._take(name, event)
                while pending and event.get("step", -1) >= pending[0].step:
                    self._inflict(pending.pop(0))
            self._end_frozen(waited, unanswered)
        while events := self._supervisor.events(0.0):  # sent before the last server was done
            for name, event in events:
                self._take(name, event)
        if not self._done.intersection(honest):
            reasons = dict.fromkeys(map(self._supervisor.failure, honest))
            told = " ".join(reason for reason in reasons if reason)
            cause = next(filter(None, map(self._supervisor.cause, honest)), None)
            raise NodeFailed(told or "Every server ended before the run was over.") from cause

    def stop(self) -> None:
        """End every process: politely, and at once if that takes long or is interrupted again."""
        try:
            for _, event in self._supervisor.stop():
                if event["event"] == "worker":  # its sums, complete only now
                    self._sink(event)
        finally:
            self._open.close()

    def _is_waited_for(self, name: str) -> bool:
        return self._supervisor.is_running(name) and name not in self._done

    def _end_frozen(self, waited: Sequence[str], unanswered: Unanswered) -> None:
        """End the servers that are waited for, if none of them gives a sign of life for long."""
        others = [name for name in self.settings.honest_servers if name not in waited]
        rounds = self.settings.rounds
        limit_s = max(rounds.timeout_s if others else rounds.give_up_s, ANSWER_S)
        waited = [name for name in waited if self._is_waited_for(name)]
        if not waited or unanswered.for_s(waited) < limit_s:
            return
        are = "done" if self._done.issuperset(others) else "done or have failed"
        why = f" and all other servers are {are}" if others else ""
        for name in waited:
            told = (
                f"{name} has not answered for {limit_s:g} s{why}: it may be frozen. Its process "
                "was ended."
            )
            self._supervisor.kill(name, told)

    def _take(self, name: str, event: Event) -> None:
        if event["event"] == "address":  # of a node that was started again
            self._addresses[name] = event["address"]
            self._introduce()
            return
        if event["event"] == "done":
            self._done.add(name)
        if event["event"] == "ended" and self._supervisor.failure(name) in (None, event["error"]):
            event = {**event, "event": "failed"}  # nothing else has told of it
        self._sink(event)

    def _introduce(self) -> None:
        """Tell every node where all of them are."""
        for name in self._names:
            self._supervisor.send(name, self._addresses)

    def _restart(self, name: str) -> None:
        """Kill a node, and start it again: a server with the last that it has saved."""
        if self._supervisor.is_running(name):
            self._supervisor.signal(name, signal.SIGKILL)
            while self._supervisor.is_running(name):
                for other, event in self._supervisor.events(1.0):
                    self._take(other, event)
        again = replace(self._options, checkpoints=self._options.checkpoints.again(name))
        self._supervisor.start(name, _run_process, self.settings.values(), self._how, again)

    def _inflict(self, fault: Fault) -> None:
        signals = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "thaw": signal.SIGCONT}
        if fault.kind == "restart":
            self._restart(fault.node)
        else:
            self._supervisor.signal(fault.node, signals[fault.kind])


def run_processes(settings: Settings, sink: Sink, *, options: NodeOptions | None = None) -> None:
    """Start all nodes, run them to the end, and stop them."""
    with Processes(settings, options) as nodes:
        nodes.start()
        nodes.run(sink)


def _run_process(
    channel: Channel, settings: dict[str, Any], how: Link, options: NodeOptions
) -> None:
    """Be one node, in a process of its own."""
    from garfield.transport.connect import role_of
    from garfield.transport.identity import PeerAddress

    for path in options.files:
        load(path)
    s = Settings.of(**settings)
    framework = s.framework_of(channel.name)
    use_threads(options.threads, [framework])
    seed_draws(crc32(f"{s.seed} {channel.name}".encode()), [framework])
    peers: dict[str, PeerAddress] = {}
    transport = _transport(s, channel.name, how, peers)
    introduced = threading.Event()

    def meet(addresses: Mapping[str, str]) -> None:
        peers.update({peer: PeerAddress(where, role_of(peer)) for peer, where in addresses.items()})
        introduced.set()

    def listening(node: Server | Worker) -> None:
        channel.listen(meet)
        channel.send({
            "event": "address", "node": channel.name, "address": transport.address,
            "layout": node.model.layout,
        })  # fmt: skip
        introduced.wait()

    run_node(
        s, channel.name, transport, channel.send, options.checkpoints,
        listening=listening, stay=lambda node: signal.pause(),  # until the launcher ends it
    )  # fmt: skip


def _transport(settings: Settings, name: str, how: Link, peers: Mapping[str, Any]) -> Any:
    if settings.nodes.transport == "grpc":
        return how.transport(name, peers, transport_of(settings))
    from garfield.transport.collectives import CollectiveTransport

    members = (*settings.server_names, *settings.worker_names)
    group: dict[str, Any] = {
        "backend": settings.nodes.transport,
        "give_up_s": settings.rounds.give_up_s,
    }
    return CollectiveTransport(name, members, peers, **group)
