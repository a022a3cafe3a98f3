"""Runs tests against a copy of the package, again and again, without starting anew.

A `Slot` is a process with a copy of the package of its own. It imports what takes long (torch,
not the package) once, and forks for every request: the child writes nothing outside the copy
and a temporary directory. Requests and answers are lines of JSON on its pipes.

    {"tests": {"tests/unit/test_x.py::test_y": 0.2}, "timeout_s": 60}
        -> {"code": 1, "failed": "tests/unit/test_x.py::test_y", …}
    {"files": ["tests/unit/test_x.py"], "timeout_s": 600}
        -> {"code": 0, "tests": {"…::test_y": {"seconds": 0.2, "functions": ["core/x.py:f"]}}}

The first kind ends with the first failure, unless it is to run them "all". The second finds out
which tests call which functions, and how long each takes.
"""

from __future__ import annotations

import compileall
import ctypes
import importlib
import json
import os
import py_compile
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any

PRELOADED = ("numpy", "pytest", "hypothesis", "torch", "torch.nn.functional")
PATIENCE = 10.0
"""How many times as long as usual a test may take before it counts as failed."""
LEAST_S = 10.0
TIMED_OUT = -1
ROOT = Path(__file__).resolve().parent.parent
_QUIET = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", "-q", "--no-header")


class Slot:
    """A process that runs tests on a copy of the package. Use as a context."""

    def __init__(self, number: int) -> None:
        self._home = tempfile.TemporaryDirectory(prefix=f"garfield-mutants-{number}-")
        home = Path(self._home.name)
        self.package = home / "src" / "garfield"
        shutil.copytree(
            ROOT / "src" / "garfield", self.package, ignore=shutil.ignore_patterns("__pycache__")
        )
        # by hash: two versions of a file may be written in the same second, and be as long
        how = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(str(self.package), quiet=2, invalidation_mode=how)
        environment = {
            **os.environ, "PYTHONPATH": f"{home / 'src'}{os.pathsep}{ROOT}",
            "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(home / "hypothesis"), "TMPDIR": str(home),
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.mutant_runner"], cwd=ROOT, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._home.cleanup()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run what is asked for; its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("A process that runs tests has ended. See its last words above.")
        found: dict[str, Any] = json.loads(answer)
        return found

    def ask_with(self, path: str, source: bytes, request: dict[str, Any]) -> dict[str, Any]:
        """The same with another text in one file of the package."""
        file = self.package / path
        before = file.read_bytes()
        file.write_bytes(source)
        try:
            return self.ask(request)
        finally:
            file.write_bytes(before)


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Answer requests, each in a child of its own, until there are no more."""
    _end_with_parent()
    for name in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    for line in requests:
        request = json.loads(line)
        print(json.dumps(_in_child(request)), file=answers, flush=True)


def _end_with_parent() -> None:
    with suppress(OSError, AttributeError):  # where there is such a call
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _in_child(request: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child(request, writing)
    os.close(writing)
    answer = _read(reading, request["timeout_s"])
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # with whatever it has started
    os.waitpid(pid, 0)
    return json.loads(answer) if answer else {"code": TIMED_OUT, "failed": "took too long, or died"}


def _read(source: int, timeout_s: float) -> bytes:
    """All that comes until the end, or nothing if that takes too long."""
    deadline, parts = time.monotonic() + timeout_s, []
    with os.fdopen(source, "rb", buffering=0) as pipe:
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                return b""
            part = pipe.read(1 << 16)
            if not part:
                return b"".join(parts)
            parts.append(part)


def _child(request: dict[str, Any], answer_to: int) -> None:
    os.setsid()
    _end_with_parent()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    try:
        import pytest

        temporary = tempfile.mkdtemp(prefix="run-")
        mapping = "files" in request
        plugin: Any = CallMap() if mapping else Chosen(request["tests"])
        files = request["files"] if mapping else plugin.files
        words = [*_QUIET, f"--basetemp={temporary}/pytest", *files]
        words += request.get("options", [])
        to_the_end = mapping or request.get("all")
        code = int(pytest.main(words if to_the_end else [*words, "-x"], plugins=[plugin]))
        answer = json.dumps({"code": code, **plugin.answer()})
        shutil.rmtree(temporary, ignore_errors=True)
        with os.fdopen(answer_to, "w") as pipe:
            pipe.write(answer)
    finally:
        os._exit(0)


class Chosen:
    """Lets pytest run the chosen tests alone, the fastest first, none for much too long."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self.files = list(dict.fromkeys(name.partition("::")[0] for name in seconds))
        self._failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        import pytest

        chosen = [item for item in items if item.nodeid in self._seconds]
        chosen.sort(key=lambda item: self._seconds[item.nodeid])
        for item in chosen:
            limit = max(LEAST_S, PATIENCE * self._seconds[item.nodeid])
            item.add_marker(pytest.mark.timeout(limit))
        items[:] = chosen

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def answer(self) -> dict[str, Any]:
        return {"failed": "".join(self._failed[:1]), "all_failed": self._failed}


class CallMap:
    """Notes which functions of the package each test calls, in all of its threads."""

    def __init__(self) -> None:
        self._tests: dict[str, dict[str, Any]] = {}
        self._called: set[str] = set()
        self._known: dict[Any, str | None] = {}
        self._began = 0.0
        self._names: dict[str, bool] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._called, self._began = set(), time.perf_counter()
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome != "passed":
            self._names[report.nodeid] = False  # failed or skipped: of no use here

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        if self._names.get(nodeid, True):
            took_s = time.perf_counter() - self._began
            self._tests[nodeid] = {"seconds": took_s, "functions": sorted(self._called)}

    def _trace(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code not in self._known:
            _, found, path = code.co_filename.rpartition(f"{os.sep}src{os.sep}garfield{os.sep}")
            name = getattr(code, "co_qualname", code.co_name)  # only that before Python 3.11
            self._known[code] = f"{path}:{name}" if found else None
        name = self._known[code]
        if name is not None:
            self._called.add(name)

    def answer(self) -> dict[str, Any]:
        return {"tests": self._tests}


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w") as replies:
        os.dup2(2, 1)  # whatever prints, prints elsewhere
        serve(sys.stdin, replies)
