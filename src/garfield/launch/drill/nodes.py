"""A stage of `garfield node` processes: a cluster on loopback, by TCP or TLS, on wires of ours.

Every node has a cluster's file of its own, in which its peers are where its wires begin. The run
has no last step until `finish` gives it one.
"""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from garfield.apps.settings import Settings
from garfield.core.config import as_toml
from garfield.core.files import write_text
from garfield.launch.drill import checks
from garfield.launch.drill.checks import Broken, Violation
from garfield.launch.drill.hostile import Stranger
from garfield.launch.drill.logs import Logs
from garfield.launch.drill.ports import lasting_ports
from garfield.launch.drill.rehearsal import ENDLESS, STEPS_MORE
from garfield.launch.drill.schedule import Fault, FaultKind
from garfield.launch.drill.watch import Watch, alive, descriptors, until
from garfield.launch.drill.wires import Passage, Wires
from garfield.runs.process import preload_modules
from garfield.runs.supervised import Target
from garfield.runs.supervisor import Supervisor
from garfield.transport.connect import role_of

_PRELOAD = ["garfield.launch.node_record", "garfield.transport.grpc.transport"]

_ENDS = {
    FaultKind.KILL: (signal.SIGKILL, -signal.SIGKILL),
    FaultKind.IMPOSTOR: (signal.SIGKILL, -signal.SIGKILL),
    FaultKind.RESTART: (signal.SIGTERM, 0),
    FaultKind.INTERRUPT: (signal.SIGINT, 130),
}
"""The signal that ends a node, and the exit code that it must then have."""
_PASSAGES = {
    FaultKind.CUT: Passage.CUT, FaultKind.REFUSE: Passage.REFUSED, FaultKind.SLOW: Passage.SLOW,
}  # fmt: skip


class NodeStage:
    """A cluster of processes. Use as a context."""

    def __init__(
        self, settings: Settings, directory: Path, *, tls: bool, command: Target, patience_s: float
    ) -> None:
        """`command` runs ``garfield`` in a process: it is called with its words, where to print
        to and a directory for temporary files."""
        self._settings, self._directory = settings, directory
        self._names = tuple(dict.fromkeys((*settings.server_names, *settings.worker_names)))
        self._tls, self._command, self._patience_s = tls, command, patience_s
        self._ports = dict(zip(self._names, lasting_ports(len(self._names)), strict=True))
        self._open = ExitStack()
        self._pids: set[int] = set()
        self._files_open: dict[str, int] = {}
        self._before = checks.shared_names()
        self.watch = Watch({name: self._out(name) / "metrics.jsonl" for name in self._names})

    def __enter__(self) -> NodeStage:
        self._tmp = self._directory / "tmp"
        self._tmp.mkdir(parents=True)
        self._logs = self._open.enter_context(Logs(self._directory, self._names))
        self._wires = self._open.enter_context(Wires())
        preload = [*preload_modules(self._settings.frameworks), *_PRELOAD]
        self._supervisor = self._open.enter_context(Supervisor(preload=preload))
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            self._supervisor.signal(name, signal.SIGKILL)
        self._open.close()

    def step(self) -> int:
        self.watch.look()
        return max((self.watch.steps.get(name, 0) for name in self._servers), default=0)

    # -- a drill --------------------------------------------------------------------------------

    def start(self) -> Sequence[Violation]:
        if self._tls:
            from garfield.transport.certs import make

            make(self._directory / "certs", {name: role_of(name) for name in self._names})
        self._addresses = {name: self._wired(name) for name in self._names}
        self._write_clusters(ENDLESS)
        for name in self._names:
            self._start(name)
        return self._settle()

    def strike(self, fault: Fault) -> Sequence[Violation]:
        wanted = self.step() + fault.after_steps
        until(lambda: self.step() >= wanted, self._patience_s)
        found = self._do(fault)
        return [*found, *self._settle()]

    def finish(self) -> Sequence[Violation]:
        found = self._stop_all()
        saved = {name: self._newest(name) for name in self._servers}
        found += checks.checkpoints(self._checkpoints(name) for name in self._names)
        last = max(*saved.values(), self.step()) + STEPS_MORE
        self._write_clusters(last)
        self.watch.done.clear()
        for name in self._names:
            self._start(name)
        if not until(lambda: self._all_done(last), self._patience_s):
            late = [name for name in self._names if self.watch.done.get(name) != last]
            found += [self._hang(late, f"did not come to step {last}")]
        for name in self._servers:  # each from its own: it knows no other's
            found += self._not_resumed(name, saved[name])
        found += self._stop_all()
        found += self._look_around()
        return found

    # -- faults ---------------------------------------------------------------------------------

    def _do(self, fault: Fault) -> list[Violation]:
        match fault.kind:
            case FaultKind.FREEZE:
                self._supervisor.signal(fault.node, signal.SIGSTOP)
                time.sleep(fault.lasts_s)
                self._supervisor.signal(fault.node, signal.SIGCONT)
            case FaultKind.CUT | FaultKind.REFUSE | FaultKind.SLOW:
                self._wires.set(self._wires.around(fault.node), _PASSAGES[fault.kind])
                time.sleep(fault.lasts_s)
                self._wires.set(self._wires.around(fault.node), Passage.OPEN)
            case FaultKind.HOSTILE:
                stranger = Stranger(self._ports[fault.node])
                stranger.come()
                time.sleep(fault.lasts_s)
                stranger.go()
            case FaultKind.FULL_DISK:
                return self._fill_disk(fault)
            case _:
                return self._end(fault)
        return []

    def _end(self, fault: Fault) -> list[Violation]:
        number, code = _ENDS[fault.kind]
        found = self._ended([fault.node], number, code)
        if fault.kind is FaultKind.IMPOSTOR:
            self._wires.set(self._wires.to(fault.node), Passage.MISLED)
        time.sleep(fault.lasts_s)
        self._wires.set(self._wires.to(fault.node), Passage.OPEN)
        found += checks.checkpoints([self._checkpoints(fault.node)])
        saved = self._newest(fault.node)
        resumed = self._look().resumed[fault.node]
        before = len(resumed)  # what it told until it ended, and only now is read, is no sign of it
        self._start(fault.node)
        if fault.node in self._servers and saved:
            until(lambda: self._look() and len(resumed) > before, self._patience_s)
            found += self._not_resumed(fault.node, saved)
        return found

    def _fill_disk(self, fault: Fault) -> list[Violation]:
        """A node that can write no more may go on, or end and say why."""
        pid, limits = self._supervisor.pids[fault.node], resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, limits[1]))
        until(lambda: not self._running(fault.node), fault.lasts_s)
        if self._running(fault.node):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
            return []
        found = self._wrong_codes([fault.node], 1)
        self._start(fault.node)
        return found

    # -- whether all goes on --------------------------------------------------------------------

    @property
    def _servers(self) -> tuple[str, ...]:
        return self._settings.honest_servers

    def _look(self) -> Watch:
        self.watch.look()
        self._logs.look()
        self._supervisor.events(0.0)
        return self.watch

    def _running(self, name: str) -> bool:
        self._supervisor.events(0.0)
        return self._supervisor.is_running(name)

    def _settle(self) -> list[Violation]:
        """Wait until all nodes go on; who has ended by itself is noted, and started again."""
        found: list[Violation] = []
        before = dict(self._look().told)

        def going() -> bool:
            for name in [name for name in self._names if not self._running(name)]:
                if len(found) < len(self._names):
                    found.append(self._wrong_end(name))
                    self._start(name)
            return not self._behind(before)

        if not until(going, self._patience_s):
            found.append(self._hang(self._behind(before), "do not go on"))
        found += checks.messages(self._logs.new())
        found += checks.framed(self.watch.accused, self._settings.liars)
        self.watch.accused.clear()
        now = {n: files for n in self._names if (files := self._descriptors(n)) is not None}
        found += checks.descriptors(self._files_open, now)
        self._files_open = {**now, **self._files_open}
        return found

    def _behind(self, before: dict[str, int]) -> list[str]:
        s = self._settings
        return self._look().behind(before, s.server_names, s.worker_names)

    def _all_done(self, last: int) -> bool:
        self._look()
        return all(self.watch.done.get(name) == last for name in self._names)

    def _hang(self, late: Sequence[str], what: str) -> Violation:
        said = "; ".join(f"{name}: {self._logs.last_line(name)}" for name in late[:3])
        return Violation(
            Broken.HANG, f"{', '.join(late)} {what} in {self._patience_s:.0f} s. They said: {said}"
        )

    def _newest(self, name: str) -> int:
        """The newest step that a node has saved."""
        return checks.newest_step({name: self._checkpoints(name)}, 1)

    def _not_resumed(self, name: str, saved: int) -> list[Violation]:
        at = self.watch.resumed[name][-1] if self.watch.resumed[name] else 0
        if at >= saved:
            return []
        what = f"{name} went on from step {at}, and step {saved} was saved"
        return [Violation(Broken.CHECKPOINT, what)]

    def _look_around(self) -> list[Violation]:
        """What is left when all have ended."""
        found = checks.messages(self._logs.new())
        found += checks.checkpoints(self._checkpoints(name) for name in self._names)
        found += checks.half_written(self._out(name) for name in self._names)
        found += checks.temporary(self._tmp)
        found += checks.shared_memory(self._before)
        honest = {n: a for n, a in self.watch.accuracy.items() if n in self._servers}
        found += checks.models(honest, self.watch.best)
        left = sorted(pid for pid in self._pids if alive(pid))
        return found + [Violation(Broken.ORPHAN, f"process {pid} still runs") for pid in left]

    # -- nodes ----------------------------------------------------------------------------------

    def _out(self, name: str) -> Path:
        return self._directory / name

    def _checkpoints(self, name: str) -> Path:
        return self._out(name) / "checkpoints"

    def _descriptors(self, name: str) -> int | None:
        return descriptors(self._supervisor.pids[name])

    def _wired(self, name: str) -> dict[str, str]:
        """Where that node is told that everybody is."""
        ports = {
            peer: port if peer == name else self._wires.lay(name, peer, port)
            for peer, port in self._ports.items()
        }
        return {peer: f"127.0.0.1:{port}" for peer, port in ports.items()}

    def _write_clusters(self, steps: int) -> None:
        for name in self._names:
            tls = 'tls = "certs"\n' if self._tls else ""
            settings = as_toml(self._settings.updated(steps=steps).values())
            nodes = as_toml(self._addresses[name])
            text = f"{tls}[settings]\n{settings}\n[nodes]\n{nodes}"
            write_text(self._cluster(name), text)

    def _cluster(self, name: str) -> Path:
        return self._directory / f"{name}.toml"

    def _start(self, name: str) -> None:
        """As it was started before: it goes on with what is in its directory."""
        words = ["node", "--cluster", str(self._cluster(name)), "--name", name, "--threads", "1"]
        words += ["--out", str(self._out(name))]
        log = str(self._logs.path(name))
        self._supervisor.start(name, self._command, words, log, str(self._tmp))
        self._pids.add(self._supervisor.pids[name])
        self._files_open.pop(name, None)

    def _ended(self, names: Sequence[str], number: int, code: int) -> list[Violation]:
        """End these by a signal; what is wrong with how they ended."""
        for name in names:
            self._supervisor.signal(name, number)
        late = []
        if not until(lambda: not any(map(self._running, names)), self._patience_s):
            late = [name for name in names if self._running(name)]
            for name in late:
                self._supervisor.signal(name, signal.SIGKILL)
            until(lambda: not any(map(self._running, late)), self._patience_s)
        found = [self._hang(late, f"did not end by signal {number}")] if late else []
        return found + self._wrong_codes([name for name in names if name not in late], code)

    def _stop_all(self) -> list[Violation]:
        running = [name for name in self._names if self._running(name)]
        gone = [name for name in self._names if name not in running]
        return self._wrong_codes(gone, 0) + self._ended(running, signal.SIGTERM, 0)

    def _wrong_codes(self, names: Iterable[str], code: int) -> list[Violation]:
        return [self._wrong_end(n) for n in names if self._supervisor.exit_codes[n] != code]

    def _wrong_end(self, name: str) -> Violation:
        code, said = self._supervisor.exit_codes[name], self._logs.last_line(name)
        return Violation(Broken.EXIT_CODE, f"{name} ended with {code}, and said: {said}")
