"""A warm client at the far end of the link, that trains when it is told and says how long it took.

    with TimedClient(world, "alexnet", folder) as client:
        situation = client.plan("uint8", batch=128)
        told = client.time("uint8", mbps=20, batch=128, split=3, iterations=3)

The process is `split_timed_process`, one for each model; the link is limited while it is timed,
and fast for everything else.
"""

from __future__ import annotations

import json
import subprocess
import sys
from types import TracebackType
from typing import IO, Any

from benchmarks.split_timings import situation_from
from benchmarks.split_world import SplitWorld
from garfield.core.errors import RunError
from garfield.split.planner import Situation
from garfield.split.settings import Loading

FAST = 1000.0
"""Mbps, for what is not timed."""


class TimedClient:
    """The client's process, which ends with the context."""

    def __init__(self, world: SplitWorld, model: str, folder: str) -> None:
        """Profiles are kept in the folder, so they are of this very run."""
        self._world = world
        self._prepared: set[tuple[str, int]] = set()
        words = [*world.network.beside_client, sys.executable, "-m",
                 "benchmarks.split_timed_process", model, world.server]  # fmt: skip
        self._process = subprocess.Popen(
            words, env=world.environment | {"GARFIELD_DATA": folder}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, process_group=0,
        )  # fmt: skip

    def __enter__(self) -> TimedClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def measured(self, stored_as: str, *, mbps: float, batch: int) -> dict[str, Any]:
        """What planners are told, measured over a link of that bandwidth; as JSON."""
        self._world.network.limit(mbps)
        found: dict[str, Any] = self._asked("plan", stored_as=stored_as, batch=batch)["situation"]
        self._world.network.limit(FAST)
        return found

    def situation(self, stored_as: str, *, mbps: float, batch: int) -> Situation:
        """The same, for planners."""
        return situation_from(self.measured(stored_as, mbps=mbps, batch=batch))

    def time(
        self, stored_as: str, *, mbps: float, batch: int, split: int, iterations: int,
        least_s: float = 0.0, chunk: int = Loading.chunk, hopeless_s: float | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Train at a cut: seconds of each iteration behind the first two, and their bytes."""
        network = self._world.network
        network.limit(FAST)
        if (stored_as, split) not in self._prepared:
            self._asked("prepare", stored_as=stored_as, split=split)
            self._prepared.add((stored_as, split))
        network.limit(mbps)
        told = self._asked(
            "time", stored_as=stored_as, batch=batch, split=split, chunk=chunk,
            iterations=iterations, least_s=least_s, hopeless_s=hopeless_s,
        )  # fmt: skip
        network.limit(FAST)
        self._answer()  # what was under way has arrived
        return told

    def _asked(self, do: str, **words: Any) -> dict[str, Any]:
        stdin = self._stream("stdin")
        stdin.write(json.dumps({"do": do, **words}) + "\n")
        stdin.flush()
        answer = self._answer()
        if "overdue" in answer:
            self._world.network.limit(FAST)
            answer = self._answer()
        return answer

    def _answer(self) -> dict[str, Any]:
        line = self._stream("stdout").readline()
        if not line:
            raise RunError("The client ended; what it said stands above.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _stream(self, name: str) -> IO[str]:
        stream: IO[str] = getattr(self._process, name)
        return stream
