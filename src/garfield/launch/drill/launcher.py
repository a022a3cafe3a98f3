"""A stage of one `garfield train`: its nodes pass sealed memory, and it is ended and resumed.

The launcher starts none of its nodes again: who was killed is back when the run is resumed. The
run has no last step until `finish` gives it one.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from garfield.apps.settings import Settings
from garfield.core.config import as_toml
from garfield.core.files import write_text
from garfield.launch.drill import checks
from garfield.launch.drill.checks import Broken, Violation
from garfield.launch.drill.hostile import Stranger
from garfield.launch.drill.logs import Logs
from garfield.launch.drill.rehearsal import ENDLESS, STEPS_MORE
from garfield.launch.drill.schedule import LAUNCHER, Fault, FaultKind
from garfield.launch.drill.watch import Watch, descriptors, session, until
from garfield.runs.process import ending_with_parent
from garfield.runs.scratch import short_place

_GONE_S = 20.0
"""How long the nodes of a launcher that has ended may be there."""
_INTERRUPTED = 130
_ENDS = {
    FaultKind.KILL: (signal.SIGKILL, -signal.SIGKILL),
    FaultKind.RESTART: (signal.SIGTERM, _INTERRUPTED),
    FaultKind.INTERRUPT: (signal.SIGINT, _INTERRUPTED),
}
"""The signal that ends the launcher, and the exit code that it must then have."""


class LauncherStage:
    """A run of `garfield train`. Use as a context."""

    def __init__(self, settings: Settings, directory: Path, *, patience_s: float) -> None:
        self._settings, self._directory, self._patience_s = settings, directory, patience_s
        self._open = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: set[int] = set()
        self._down: set[str] = set()
        self._runs = 0
        self._files_open: dict[str, int] = {}
        self._before = checks.shared_names()
        self._renew()

    def __enter__(self) -> LauncherStage:
        self._directory.mkdir(parents=True, exist_ok=True)
        place = short_place(room=len("/drill-12345678"))  # the run's sockets stand in it
        temporary = TemporaryDirectory(prefix="drill-", dir=place, ignore_cleanup_errors=True)
        self._tmp = Path(self._open.enter_context(temporary))
        self._logs = self._open.enter_context(Logs(self._directory, [LAUNCHER]))
        return self

    def __exit__(self, *_: object) -> None:
        for leader in self._sessions:
            for pid in session(leader):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        self._open.close()

    def step(self) -> int:
        steps = self._look().steps
        return max((steps.get(name, 0) for name in self._settings.honest_servers), default=0)

    # -- a drill --------------------------------------------------------------------------------

    def start(self) -> Sequence[Violation]:
        settings = self._settings.updated(steps=ENDLESS)
        write_text(self._directory / "settings.toml", as_toml(settings.values()))
        self._launch()
        return self._settle()

    def strike(self, fault: Fault) -> Sequence[Violation]:
        wanted = self.step() + fault.after_steps
        until(lambda: self.step() >= wanted or not self._running(), self._patience_s)
        found = self._to_launcher(fault) if fault.node == LAUNCHER else self._to_node(fault)
        return [*found, *self._settle()]

    def finish(self) -> Sequence[Violation]:
        found = self._end(signal.SIGINT, _INTERRUPTED)
        last = max(self._saved(), self.step()) + STEPS_MORE
        found += self._resume(last)
        if not until(lambda: not self._running(), self._patience_s):
            return [*found, self._hang([LAUNCHER], f"did not come to step {last}")]
        found += self._wrong_code(0)
        found += self._not_resumed()
        if self.step() != last:
            found.append(Violation(Broken.EXIT_CODE, f"it ended at step {self.step()} of {last}"))
        return [*found, *self._orphans(), *self._look_around()]

    # -- faults ---------------------------------------------------------------------------------

    def _to_node(self, fault: Fault) -> list[Violation]:
        pid = self._pids().get(fault.node)
        if pid is None:
            return []  # it was killed before
        match fault.kind:
            case FaultKind.KILL:
                os.kill(pid, signal.SIGKILL)
                self._down.add(fault.node)
                return self._bereaved(fault.node)
            case FaultKind.FREEZE:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(fault.lasts_s)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            case FaultKind.HOSTILE:
                for path in self._tmp.glob(f"garfield-*/{fault.node}"):
                    stranger = Stranger(str(path))
                    stranger.come()
                    time.sleep(fault.lasts_s)
                    stranger.go()
        return []

    def _bereaved(self, node: str) -> list[Violation]:
        """A run that does not bear the loss of that node ends with 1, and is resumed."""
        s = self._settings
        bears_server = len(s.server_names) > 1 and s.numbers.f_ps > 0
        bears_worker = s.numbers.f_w > 0
        if (node not in s.server_names or bears_server) and (
            node not in s.worker_names or bears_worker
        ):
            return []
        if not until(lambda: not self._running(), self._patience_s):
            return [self._hang([LAUNCHER], f"did not end without {node}")]
        return [*self._wrong_code(1), *self._orphans(), *self._resume(), *self._not_resumed()]

    def _to_launcher(self, fault: Fault) -> list[Violation]:
        if fault.kind is FaultKind.FULL_DISK:
            return self._fill_disk(fault)
        found: list[Violation] = []
        if fault.starting:
            found += self._end(signal.SIGINT, _INTERRUPTED)
            found += self._resume()
            until(lambda: len(session(self._pid)) > 1, self._patience_s)
            time.sleep(fault.lasts_s)
        found += self._end(*_ENDS[fault.kind])
        found += checks.checkpoints([self._out / "checkpoints"])
        return [*found, *self._resume(), *self._not_resumed()]

    def _fill_disk(self, fault: Fault) -> list[Violation]:
        """A launcher that can write no more may go on, or end and say why."""
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (0, limits[1]))
        until(lambda: not self._running(), fault.lasts_s)
        if self._running():
            resource.prlimit(self._pid, resource.RLIMIT_FSIZE, limits)
            if not until(lambda: not self._ending(), 2 * fault.lasts_s) and self._running():
                until(lambda: not self._running(), self._patience_s)
        if self._running():
            return []
        return [*self._wrong_code(1), *self._orphans(), *self._resume(), *self._not_resumed()]

    def _ending(self) -> bool:
        """Whether it has given up: its nodes are gone, and it is writing its summary."""
        return len(self._pids()) < len(self._names) - len(self._down)

    # -- whether all goes on --------------------------------------------------------------------

    @property
    def _names(self) -> tuple[str, ...]:
        s = self._settings
        return tuple(dict.fromkeys((*s.server_names, *s.worker_names)))

    @property
    def _pid(self) -> int:
        assert self._process is not None  # start comes first
        return self._process.pid

    @property
    def _out(self) -> Path:
        return self._directory / f"run-{self._runs}"

    def _renew(self) -> None:
        self._runs += 1
        self.watch = Watch({"": self._out / "metrics.jsonl"})

    def _running(self) -> bool:
        self._logs.look()
        return self._process is not None and self._process.poll() is None

    def _look(self) -> Watch:
        self.watch.look()
        self._logs.look()
        return self.watch

    def _pids(self) -> dict[str, int]:
        """The nodes that run, by name."""
        named = {name.removeprefix("garfield: "): pid for pid, name in session(self._pid).items()}
        return {name: named[name] for name in self._names if name in named}

    def _settle(self) -> list[Violation]:
        """Wait until all nodes that are there go on; a run that has ended is resumed, once."""
        found: list[Violation] = []
        before = dict(self._look().told)
        s = self._settings

        def behind() -> list[str]:
            servers = [name for name in s.server_names if name not in self._down]
            others = [name for name in s.worker_names if name not in self._down]
            return self._look().behind(before, servers, others)

        def going() -> bool:
            if not self._running() and not found:
                found.append(self._wrong_end())
                found.extend(self._resume())
            return not behind()

        if not until(going, self._patience_s):
            found.append(self._hang(behind(), "do not go on"))
        found += checks.messages(self._logs.new())
        found += checks.framed(self.watch.accused, s.liars)
        self.watch.accused.clear()
        pids = {LAUNCHER: self._pid, **self._pids()}
        now = {n: files for n, pid in pids.items() if (files := descriptors(pid)) is not None}
        found += checks.descriptors(self._files_open, now)
        self._files_open = {**now, **self._files_open}
        return found

    def _hang(self, late: Sequence[str], what: str) -> Violation:
        said = self._logs.last_line(LAUNCHER)
        return Violation(
            Broken.HANG, f"{', '.join(late)} {what} in {self._patience_s:.0f} s. It said: {said}"
        )

    def _look_around(self) -> list[Violation]:
        """What is left when all have ended."""
        found = checks.messages(self._logs.new())
        found += checks.checkpoints([self._out / "checkpoints"])
        found += checks.half_written([self._out])
        found += checks.temporary(self._tmp)
        found += checks.shared_memory(self._before)
        honest = self._settings.honest_servers
        last = {name: each for name, each in self.watch.accuracy.items() if name in honest}
        return found + checks.models(last, self.watch.best)

    # -- the launcher ---------------------------------------------------------------------------

    def _saved(self) -> int:
        return checks.resumable_step(self._settings, lambda name: self._out / "checkpoints")

    def _launch(self, *words: str) -> None:
        settings = self._directory / "settings.toml"
        told = words or ("--config", str(settings), "--out", str(self._out))
        log = os.open(self._logs.path(LAUNCHER), os.O_WRONLY)
        self._process = subprocess.Popen(
            ending_with_parent([sys.executable, "-m", "garfield", "train", *told]),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "TMPDIR": str(self._tmp)},
        )  # fmt: skip
        os.close(log)
        self._sessions.add(self._pid)
        self._down.clear()
        self._files_open.clear()

    def _resume(self, steps: int | None = None) -> list[Violation]:
        """Go on with the run; one that has saved nothing yet begins anew."""
        self._look()
        self._expected, self._resumed_before = self._saved(), len(self.watch.resumed[""])
        if self._expected:
            more = () if steps is None else ("--steps", str(steps))
            self._launch("--resume", str(self._out), *more)
        else:
            self._renew()
            self._launch()
        return []

    def _not_resumed(self) -> list[Violation]:
        """Whether it went on from before what was saved, once it has said from where."""
        if not self._expected:
            return []
        resumed, known = self.watch.resumed[""], self._resumed_before

        def told() -> bool:
            self._look()
            return len(resumed) > known

        until(lambda: not self._running() or told(), self._patience_s)
        at = resumed[-1] if told() else 0
        if at >= self._expected:
            return []
        what = f"the run went on from step {at}, and step {self._expected} was saved"
        return [Violation(Broken.CHECKPOINT, what)]

    def _end(self, number: int, code: int) -> list[Violation]:
        """End the run by a signal; what is wrong with how it ended."""
        if number == signal.SIGINT:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, number)  # as a terminal does
        else:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)
        if not until(lambda: not self._running(), self._patience_s):
            os.kill(self._pid, signal.SIGKILL)
            assert self._process is not None
            self._process.wait()
            return [self._hang([LAUNCHER], f"did not end by signal {number}")]
        return [*self._wrong_code(code), *self._orphans()]

    def _orphans(self) -> list[Violation]:
        if until(lambda: not session(self._pid), _GONE_S):
            return []
        left = ", ".join(f"{pid} ({name})" for pid, name in session(self._pid).items())
        return [Violation(Broken.ORPHAN, f"of the launcher that has ended are left: {left}")]

    def _wrong_code(self, code: int) -> list[Violation]:
        assert self._process is not None
        return [] if self._process.returncode == code else [self._wrong_end()]

    def _wrong_end(self) -> Violation:
        assert self._process is not None
        code, said = self._process.returncode, self._logs.last_line(LAUNCHER)
        return Violation(Broken.EXIT_CODE, f"the launcher ended with {code}, and said: {said}")
