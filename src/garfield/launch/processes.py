"""Run every node of a training run as a process of this machine.

A forkserver that has the framework loaded forks the nodes, so ten of them start in the
time of one. Each node listens where its link says and tells the launcher; once
all have, everybody gets the table of addresses.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Literal

from garfield.adapters.alike import Layout, check_layouts
from garfield.apps.settings import Settings
from garfield.core.errors import NodeFailed
from garfield.core.events import Event, Sink
from garfield.launch.child import Started, run_node
from garfield.launch.links import Kind, link
from garfield.runs.threads import preload_modules

START_S = 120.0  # importing torch or TensorFlow on a busy machine
STOP_S = 5.0
LIFELINE = "garfield.runs.forkserver_lifeline"
PRELOAD = ["garfield.launch.one_node", "garfield.transport.grpc.transport"]


@dataclass(frozen=True)
class Fault:
    """Something that befalls a node when some server reaches a step: for tests and drills."""

    node: str
    step: int
    kind: Literal["kill", "freeze", "thaw", "restart"] = "kill"


@dataclass
class _Child:
    process: ForkServerProcess
    pipe: Connection
    address: str | None = None
    done: bool = False
    failure: str | None = None
    """Why it ended before it was told to."""


class Processes:
    """The nodes of one run. Use as a context: leaving it ends every process."""

    def __init__(
        self, settings: Settings, started: Started | None = None, *, by: Kind = "memory"
    ) -> None:
        self.settings = s = settings.check()
        self._names = tuple(dict.fromkeys((*s.server_names, *s.worker_names)))
        self._started = started or Started()
        self._by = by
        self._open = ExitStack()
        self._context = multiprocessing.get_context("forkserver")
        ahead = [LIFELINE, *preload_modules(s.frameworks), *PRELOAD]
        self._context.set_forkserver_preload(ahead)
        self._children: dict[str, _Child] = {}
        self._sink: Sink = lambda event: None

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> dict[str, int]:
        """Of the nodes' processes, by name."""
        return {name: child.process.pid or 0 for name, child in self._children.items()}

    def start(self) -> None:
        """Start all nodes and tell each where the others are."""
        self._link = self._open.enter_context(link(self._by, self._names))
        resource_tracker.ensure_running()  # before: it would let interrupts through again
        with _interrupts_withheld():  # inherited: Ctrl-C is for the launcher to act on
            forkserver.ensure_running()
        for name in self._names:
            self._children[name] = self._spawn(name)
        layouts: dict[str, Layout | None] = {}
        deadline = time.monotonic() + START_S
        while late := [name for name, child in self._children.items() if child.address is None]:
            for name, event in self._events(deadline - time.monotonic()):
                if event["event"] == "address":
                    self._children[name].address = event["address"]
                    layouts[name] = event["layout"]
            failed = [name for name in late if self._children[name].failure]
            if failed:
                raise NodeFailed(f"{failed[0]} did not start: {self._children[failed[0]].failure}")
            if time.monotonic() > deadline:
                raise NodeFailed(f"{', '.join(late)} did not start in {START_S:g} s.")
        check_layouts({name: layouts[name] for name in self._children})  # a server's first
        for name in self._children:
            self._introduce(name)

    def run(self, sink: Sink, faults: Sequence[Fault] = ()) -> None:
        """Until every honest server that is alive has finished; all nodes' events go to `sink`."""
        self._sink, pending = sink, sorted(faults, key=lambda fault: fault.step)
        while self._unfinished():
            for name, event in self._events(1.0):
                self._take(name, event, sink)
                while pending and event.get("step", -1) >= pending[0].step:
                    self._befall(pending.pop(0))
        while events := self._events(0.0):  # what was said before the last server was done
            for name, event in events:
                self._take(name, event, sink)
        servers = [self._children[name] for name in self.settings.honest_servers]
        if not any(server.done for server in servers):
            reasons = dict.fromkeys(server.failure for server in servers if server.failure)
            raise NodeFailed(" ".join(reasons) or "Every server ended before the run was over.")

    def stop(self) -> None:
        """End every process: politely, and at once if that takes long or is interrupted again."""
        try:
            for child in self._children.values():
                if child.process.is_alive():
                    child.process.terminate()
            deadline = time.monotonic() + STOP_S
            for child in self._children.values():
                child.process.join(max(0.0, deadline - time.monotonic()))
            self._hear_last_words()
        finally:
            for child in self._children.values():
                if child.process.is_alive():
                    child.process.kill()
                    child.process.join()
                child.pipe.close()
            self._open.close()

    def _hear_last_words(self) -> None:
        """Workers' accounts, complete only now."""
        while events := self._events(0.0):
            for _, event in events:
                if event["event"] == "worker":
                    self._sink(event)

    def _unfinished(self) -> list[str]:
        return [
            name
            for name in self.settings.honest_servers
            if not self._children[name].done and self._children[name].process.is_alive()
        ]

    def _take(self, name: str, event: Event, sink: Sink) -> None:
        if event["event"] == "address":  # one that was started again
            self._children[name].address = event["address"]
            for other in self._children:
                self._introduce(other)
            return
        if event["event"] == "done":
            self._children[name].done = True
        sink(event)

    def _spawn(self, name: str) -> _Child:
        ours, theirs = self._context.Pipe()
        arguments = (self.settings.values(), name, theirs, self._link, self._started)
        process = self._context.Process(target=run_node, args=arguments, name=name, daemon=True)
        process.start()
        theirs.close()
        return _Child(process, ours)

    def _introduce(self, name: str) -> None:
        table = {peer: child.address for peer, child in self._children.items() if child.address}
        try:
            self._children[name].pipe.send_bytes(json.dumps(table).encode())
        except OSError:
            return  # it has ended; run() sees to that

    def _events(self, timeout_s: float) -> list[tuple[str, Event]]:
        """What nodes have said within the time-out, and that they have ended if they have."""
        names = {
            child.pipe: name for name, child in self._children.items() if not child.pipe.closed
        }
        found: list[tuple[str, Event]] = []
        for pipe in wait(list(names), max(0.0, timeout_s)):
            name = names[pipe]  # type: ignore[index]
            child = self._children[name]
            try:
                event = json.loads(child.pipe.recv_bytes())
            except (EOFError, OSError):
                child.pipe.close()
                event = self._ended(name, child)
            if event["event"] == "failed":
                child.failure = child.failure or event["error"]
            found.append((name, event))
        return found

    def _ended(self, name: str, child: _Child) -> Event:
        """A node has ended without having been told to."""
        child.process.join(1.0)
        code = child.process.exitcode
        how = f"was ended by signal {-code}" if code and code < 0 else f"ended with code {code}"
        kind = "ended" if child.failure else "failed"  # a failure is told once
        return {"event": kind, "node": name, "error": f"{name} {how}.", "exit_code": code}

    def _befall(self, fault: Fault) -> None:
        child = self._children[fault.node]
        signals = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "thaw": signal.SIGCONT}
        if fault.kind == "restart":
            child.process.kill()
            child.process.join()
            self._children[fault.node] = self._spawn(fault.node)
        elif child.process.pid is not None:
            os.kill(child.process.pid, signals[fault.kind])


@contextmanager
def _interrupts_withheld() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_processes(
    settings: Settings,
    sink: Callable[[Event], None],
    *,
    faults: Sequence[Fault] = (),
    started: Started | None = None,
) -> None:
    """Start, run, stop."""
    with Processes(settings, started) as nodes:
        nodes.start()
        nodes.run(sink, faults)
