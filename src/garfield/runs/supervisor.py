"""One supervisor for the processes of a run: started, heard, signalled and ended by name.

    with Supervisor() as supervisor:
        supervisor.start("worker-0", main, 3)         # main(channel, 3), in a process
        supervisor.started(timeout_s=60)              # the first event of each
        for name, event in supervisor.events(1.0):    # what they send, and how they end
            ...

Processes end with the supervisor, also when it is killed (`attached`); with `outlive_in` they do
not, and a later supervisor of the same directory adopts them (`outliving`). What they do is
their own affair: `supervised` is their side of it.
"""

from __future__ import annotations

import json
import logging
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from garfield.core.blame import RemoteTraceback
from garfield.core.errors import ConfigError, NodeFailed
from garfield.core.events import Event
from garfield.runs import attached, outliving
from garfield.runs.outgoing import Outgoing
from garfield.runs.supervised import ALIVE, PROBE, Target

_log = logging.getLogger(__name__)
STOP_S = 5.0
_TRY_AGAIN_S = 0.05  # to send to a process that does not read

NamedEvent = tuple[str, Event]
"""An event, and the name of the process that it is of."""


@dataclass
class _Child:
    process: attached.AttachedProcess | outliving.OutlivingProcess
    failure: str | None = None
    """Why it ended, in its own words or by its exit code; None while it runs, or went well."""
    cause: RemoteTraceback | None = None
    """Where it went wrong, if it could tell."""
    exit_code: int | None = None
    ended: bool = False
    reported: bool = False
    """It has sent an event."""
    silent: bool = False
    """It has closed its side of the connection."""
    probed: bool = False
    """It was asked for a sign of life, and has not sent anything since."""

    def __post_init__(self) -> None:
        self.outgoing = Outgoing(self.process.connection)

    def flush(self) -> None:
        """Send what it had no room for before."""
        try:
            self.outgoing.flush()
        except OSError:
            self.silent = True


class Supervisor:
    """Starts processes, hears them, and ends them. Use as a context, from one thread.

    The kernel ends the processes with the thread that started the first of them: that should
    be one that lives as long as they are to live.
    """

    def __init__(self, *, preload: Sequence[str] = (), outlive_in: Path | None = None) -> None:
        """`preload` are modules to import once for all processes, as far as no supervisor has
        started any before. `outlive_in` is a directory of their own for processes that are to
        go on when this supervisor ends; they do not profit from `preload`."""
        self._children: dict[str, _Child] = {}
        self._unheard: list[NamedEvent] = []
        self._directory = outlive_in
        if outlive_in is None:
            attached.preload(preload)
        else:
            self._lock = outliving.lock(outlive_in)

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        if self._directory is None:
            self.stop()
        else:
            self.leave()

    # -- which there are ------------------------------------------------------------------

    @property
    def pids(self) -> dict[str, int]:
        """Pids of all processes so far, by name."""
        return {name: child.process.pid for name, child in self._children.items()}

    @property
    def exit_codes(self) -> dict[str, int | None]:
        """Exit codes of those that have ended: below 0 for a signal, None where nobody knows."""
        return {name: each.exit_code for name, each in self._children.items() if each.ended}

    def is_running(self, name: str) -> bool:
        """Whether its end has not been heard of."""
        return name in self._children and not self._children[name].ended

    def failure(self, name: str) -> str | None:
        """Why that process ended, if it did and should not have."""
        return self._children[name].failure

    def cause(self, name: str) -> RemoteTraceback | None:
        """The traceback of that process, to raise an error from; None if it has told none."""
        return self._children[name].cause

    # -- starting and ending --------------------------------------------------------------

    def start(self, name: str, target: Target, *arguments: Any) -> None:
        """Start a process that calls target(channel, *arguments); both must be picklable."""
        if self.is_running(name):
            raise ConfigError(f"{name} runs already, as process {self.pids[name]}.")
        if self._directory is None:
            process: Any = attached.start(target, name, arguments)
        else:
            process = outliving.start(target, name, arguments, self._directory)
        self._children[name] = _Child(process)

    def adopt(self) -> list[str]:
        """Take over the processes of an earlier supervisor of the same directory.

        Returns the names of those that run. Of the others, `events` tells how they ended.
        """
        assert self._directory is not None  # others have ended with their supervisor
        adopted = []
        for name, found in outliving.adopt(self._directory):
            if isinstance(found, outliving.OutlivingProcess):
                self._children[name] = _Child(found, reported=True)
                adopted.append(name)
                continue
            told = [*found.unsent]
            if found.error is not None and all(event["event"] != "failed" for event in told):
                told.append({"event": "failed", "node": name, "error": found.error})
            self._unheard += [(name, event) for event in (*told, _end(name, found.exit_code))]
        return adopted

    def stop(self, names: Iterable[str] | None = None) -> list[NamedEvent]:
        """End these processes, or all: politely, and at once if that takes longer than STOP_S.

        Returns what was heard meanwhile. If it is interrupted, they are killed.
        """
        chosen = [*filter(self.is_running, self._children if names is None else names)]
        heard: list[NamedEvent] = []
        try:
            for name in chosen:
                self.signal(name, signal.SIGTERM)
            deadline = time.monotonic() + STOP_S
            while any(map(self.is_running, chosen)) and time.monotonic() < deadline:
                heard += self.events(deadline - time.monotonic())
        finally:
            heard += [(name, self._kill(name)) for name in chosen if self.is_running(name)]
        return heard

    def leave(self) -> None:
        """Let go of processes that are to outlive this supervisor."""
        for child in self._children.values():
            if not child.ended:
                child.process.close()
        self._children.clear()
        self._lock.close()

    # -- talking --------------------------------------------------------------------------

    def started(self, timeout_s: float) -> dict[str, Event]:
        """Wait for the first events of the processes started last, and return them by name.

        NodeFailed if one has ended before, or has nothing to say in that time.
        """
        first: dict[str, Event] = {}
        later: list[NamedEvent] = []
        deadline = time.monotonic() + timeout_s
        names = [name for name, each in self._children.items() if not each.reported | each.ended]
        while late := [name for name in names if name not in first]:
            if time.monotonic() > deadline:
                raise NodeFailed(f"{', '.join(late)} did not start in {timeout_s:g} s.")
            for name, event in self.events(deadline - time.monotonic()):
                if name in first or name not in late:
                    later.append((name, event))
                elif event["event"] in ("failed", "ended"):
                    cause = self.cause(name)
                    raise NodeFailed(f"{name} did not start: {event['error']}") from cause
                else:
                    first[name] = event
        self._unheard = later
        return first

    def events(self, timeout_s: float | None = None) -> list[NamedEvent]:
        """What processes have sent, waiting until one has, or for the time-out.

        A process that has ended is told once, last of its events, as "ended" with its exit
        code; one that failed has sent "failed" before.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._unheard:
            running = {name: child for name, child in self._children.items() if not child.ended}
            if not running:
                break
            watched: list[Any] = [child.process.sentinel for child in running.values()]
            watched += [each.process.connection for each in running.values() if not each.silent]
            ready = set(wait(watched, self._wait_s(running.values(), deadline)))
            if not ready:
                if deadline is None or time.monotonic() < deadline:
                    continue
                break
            for name, child in running.items():
                if not child.silent and child.process.connection in ready:
                    self._receive(name, child)
                elif child.process.sentinel in ready:  # and there is nothing left to be heard
                    self._unheard.append((name, self._note_end(name, child)))
        heard, self._unheard = self._unheard, []
        return heard

    def send(self, name: str, message: Any) -> None:
        """Send a short message to a process; nothing happens if it has just ended.

        One that does not read, as it is frozen, gets it when it does: nobody waits for it here.
        """
        self._send(self._children[name], json.dumps(message).encode())

    def probe(self, name: str) -> bool:
        """Ask a process for a sign of life, without waiting for it.

        Says whether the one before was answered: by a process that is busy, yes; by one that is
        frozen, no.
        """
        child = self._children[name]
        if child.probed:
            return False
        self._send(child, PROBE)
        child.probed = not child.silent
        return True

    def kill(self, name: str, why: str) -> None:
        """End a process at once, and tell why as its failure; nothing happens if it has ended."""
        if self.is_running(name):
            self._children[name].failure = why
            told = {"event": "failed", "node": name, "error": why}
            self._unheard += [(name, told), (name, self._kill(name))]

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process; nothing happens if it has ended."""
        if self.is_running(name):
            self._children[name].process.signal(number)

    # -- how ------------------------------------------------------------------------------

    def _send(self, child: _Child, message: bytes) -> None:
        if not child.ended and not child.silent:
            try:
                child.outgoing.send(message)
            except OSError:
                child.silent = True

    def _wait_s(self, running: Iterable[_Child], deadline: float | None) -> float | None:
        """How long to wait for events, while messages that wait to be sent are tried again."""
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        unsent = [child for child in running if child.outgoing.waiting and not child.silent]
        for child in unsent:
            child.flush()
        if not any(child.outgoing.waiting and not child.silent for child in unsent):
            return left_s
        return _TRY_AGAIN_S if left_s is None else min(left_s, _TRY_AGAIN_S)

    def _receive(self, name: str, child: _Child) -> None:
        try:
            event = json.loads(child.process.connection.recv_bytes())
        except (EOFError, OSError):
            child.silent = True  # its end is still to come
            return
        child.probed = False
        if event == ALIVE:
            return
        child.reported = True
        if event["event"] == "failed":
            child.failure = child.failure or event["error"]
            if "trace" in event:
                child.cause = RemoteTraceback(event["trace"])
            _log.debug("%s failed:\n%s", name, event.get("trace", ""))
        self._unheard.append((name, event))

    def _note_end(self, name: str, child: _Child) -> Event:
        child.process.join()
        child.exit_code, child.ended = child.process.exit_code, True
        event = _end(name, child.exit_code)
        if child.exit_code != 0:
            child.failure = child.failure or event["error"]
        child.process.close()
        return event

    def _kill(self, name: str) -> Event:
        child = self._children[name]
        child.process.signal(signal.SIGKILL)
        return self._note_end(name, child)


def _end(name: str, code: int | None) -> Event:
    if code is None:
        how = "has ended, and how is not known: the supervisor that started it is gone"
    else:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return {"event": "ended", "node": name, "error": f"{name} {how}.", "exit_code": code}
