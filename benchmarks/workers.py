"""Measuring in another process: a line of JSON goes in, a line of JSON comes back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BYZFL = ROOT / ".venv-byzfl"
_BYZFL_STEPS = (  # torch stands in every step: without the pin, pip pulls gigabytes
    ("torch==2.13.0",),
    ("torch==2.13.0", "numpy", "scipy"),
    ("torch==2.13.0", "--no-deps", "byzfl==0.0.11"),  # its torchvision cannot be imported here
    # save by who defines what it lacks; it wants a GPU's torch, and gets ours
    ("torch==2.13.0", "--no-deps", "torchvision==0.28.0", "pillow"),
)


class Worker:
    """A child process that answers jobs one by one; ended when the block is left."""

    def __init__(self, module: str, python: Path | str = sys.executable) -> None:
        self.process = subprocess.Popen(
            [python, "-m", module],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.process.kill()
        self.process.communicate()

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """The answer to one job; waits for it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        return json.loads(answer) if answer else {"note": "died", "why": "its process ended"}


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The worker's side: answer every job until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who ends us
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def byzfl_python(say: Callable[[str], None]) -> Path | None:
    """The Python of ByzFL's own environment, made on first use; None if that fails."""
    python, ready = BYZFL / "bin" / "python", BYZFL / f".ready-{len(_BYZFL_STEPS)}"
    if ready.exists():
        return python
    say(f"Making {BYZFL.name} for ByzFL: once, about a minute.")
    pip = [str(python), "-m", "pip", "install", "-qq", "-c", str(ROOT / "constraints.txt")]
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(BYZFL)], check=True)
        for packages in _BYZFL_STEPS:
            subprocess.run([*pip, *packages], check=True)
    except subprocess.CalledProcessError as problem:
        say(f"ByzFL could not be installed ({problem}). Its columns stay empty.")
        return None
    ready.touch()
    return python
