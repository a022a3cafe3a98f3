"""A real federation of Flower's on this machine: a SuperLink, SuperNodes, and runs of an app.

Flower wants other versions of protobuf, rich and starlette than we have, so it lives in an
environment of its own, .venv-flower beside .venv, made on first use; our sources are added by
PYTHONPATH.
"""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".venv-flower"
FLWR = "flwr==1.41.0"
PATIENCE_S = 150


def python():
    """The Python of Flower's environment; skips the test where it cannot be made."""
    found, ready = HOME / "bin" / "python", HOME / f".ready-{FLWR}"
    with (ROOT / ".venv-flower.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        if not ready.exists():
            pip = [found, "-m", "pip", "install", "-qq", FLWR]
            try:
                subprocess.run([sys.executable, "-m", "venv", "--clear", HOME], check=True)
                subprocess.run(pip, check=True, timeout=200)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as problem:
                pytest.skip(f"{FLWR} cannot be installed here: {problem}")
            ready.touch()
    return found


def environment(home):
    """What processes of Flower's are given: our sources, their own home, nothing sent elsewhere."""
    return {
        **os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0", "PATH": f"{HOME / 'bin'}:{os.environ['PATH']}",
        "NO_COLOR": "1",
    }  # fmt: skip


@contextmanager
def federation(home, nodes):
    """Start a SuperLink, and a SuperNode for each of these node configs; yield how to run an app.

    That function is given the directory of an app and its settings, and returns what was printed.
    """
    python()
    env = environment(home)
    log = home / "log.txt"
    processes = []
    with log.open("w") as out:

        def start(*words):
            command = [str(word) for word in words]
            started = subprocess.Popen(
                command, env=env, cwd=home, stdout=out, stderr=out, start_new_session=True
            )
            processes.append(started)

        try:
            yield from _run_federation(home, nodes, env, start)
        finally:
            end(processes)


def _run_federation(home, nodes, env, start):
    port, *ports = free_ports(1 + len(nodes))
    start("flower-superlink", "--insecure", "--disable-runtime-dependency-installation",
          "--port", port)  # fmt: skip
    wait_for_port(port)
    for own, config in zip(ports, nodes, strict=True):
        start("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}",
              "--port", own, "--node-config", config)  # fmt: skip
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\n'
        "insecure = true\n"
    )

    def run(app, **settings):
        words = " ".join(f"{k}={v!r}".replace("'", '"') for k, v in settings.items())
        return subprocess.run(
            ["flwr", "run", str(app), "here", "--stream", "--run-config", words],
            env=env, cwd=home, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip

    yield run


def free_ports(count):
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_for_port(port):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"Nobody listens on port {port}.")


def end(processes):
    """End processes and whatever they have started, by their own groups."""
    for number, patience_s in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        deadline = time.monotonic() + patience_s
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
