"""A process of the pool, seen from inside: it runs one cell after the other.

What one cell has read, the next finds in memory: torch, data sets, users' files. A cell leaves a
run directory as any run does, and last of all `cell.json`, which says that it is complete and
holds what tables need. A model that diverged is a result; whatever else goes wrong is a failure,
whose traceback is kept in `failure.txt`.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from garfield.apps.settings import Settings
from garfield.core.blame import told
from garfield.core.events import Event
from garfield.core.files import write_json, write_text
from garfield.launch.node_checkpoints import NodeCheckpoints
from garfield.launch.training import RunResult, train
from garfield.report.sweep_results import ACCURACY
from garfield.runs.run_directory import RunDirectory
from garfield.runs.supervised import Channel
from garfield.runs.user_files import load

CELL, FAILURE = "cell.json", "failure.txt"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TELL_S = 0.2  # between two events about steps
_ROOM = 256 << 10  # bytes that a cell's files may well take


def run_cells(channel: Channel, files: Sequence[str]) -> None:
    """Run the cells that the supervisor sends, until it ends this process."""
    for path in files:
        load(Path(path))
    jobs: SimpleQueue[dict[str, Any]] = SimpleQueue()
    channel.listen(jobs.put)
    channel.send({"event": "ready", "node": channel.name})
    while True:
        event = _ended(channel, jobs.get())
        if event is None:
            return  # told to end
        channel.send(event)


def has_room(directory: Path) -> bool:
    """Whether a few files can be written there: tried, as quotas are not told otherwise."""
    probe = directory / f".room.{os.getpid()}.part"
    try:
        with probe.open("wb") as file:
            file.write(bytes(_ROOM))
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        return problem.errno not in NO_ROOM
    finally:
        probe.unlink(missing_ok=True)
    return True


def _ended(channel: Channel, job: dict[str, Any]) -> Event | None:
    """Run a cell; the event that tells of its end, None if this process is to end."""
    directory, began = Path(job["directory"]), time.perf_counter()
    about = {"node": channel.name, "cell": job["cell"]}
    try:
        result = _run(channel, job, directory)
        if result.interrupted:
            return None
        if result.failure is None or result.summary["diverged"]:
            found = {**_found(result), "wall_s": time.perf_counter() - began}
            write_json(directory / CELL, {**job["about"], **found})
            return {"event": "cell-done", **about, "found": found}
        why, trace = _told(result.failure, result.error)
    except Exception as error:
        why, trace = _told("", error)
    room = has_room(directory.parent)
    if room:
        _keep(directory / FAILURE, trace)
    return {"event": "cell-failed", **about, "error": why, "trace": trace, "room": room}


def _run(channel: Channel, job: dict[str, Any], path: Path) -> RunResult:
    if path.exists():
        shutil.rmtree(path)  # of a cell that was not completed
    settings, directory = Settings.of(**job["settings"]), RunDirectory(path)
    checkpoints = NodeCheckpoints(directory.checkpoints if job["checkpoints"] else None)
    display = _Told(channel, job["cell"])
    return train(
        settings, directory, display,
        checkpoints=checkpoints, threads=job["threads"], pictures=False,
    )  # fmt: skip


def _told(failure: str, error: Exception | None) -> tuple[str, str]:
    """Why a cell failed in a line, and where that was raised."""
    if error is None:
        return failure, failure
    return told(error), "".join(traceback.format_exception(error))


def _found(result: RunResult) -> dict[str, Any]:
    """What results and pictures need of a run that has ended."""
    summary, diverged = result.summary, result.summary["diverged"]
    metric = summary.get("metric") or ACCURACY
    useless = 0.0 if metric == ACCURACY else None
    return {
        "status": "diverged" if diverged else "done",
        "metric": metric,
        "larger_is_better": summary.get("larger_is_better") is not False,
        "score": useless if diverged else summary.get("score", summary["accuracy"]),
        "best_score": summary.get("best_score", summary["best_accuracy"]),
        "loss": None if diverged else summary["loss"],
        "steps": summary["steps"],
        "train_s": summary["time_s"],
        "error": diverged or "",
        "curve": [[point.step, point.accuracy] for point in result.history.curve],
    }


def _keep(path: Path, trace: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, trace)
    except OSError:
        pass  # the supervisor has the trace too, and tells that it cannot be kept


class _Told:
    """The display of a cell's run: its steps go to the supervisor, now and then."""

    def __init__(self, channel: Channel, cell: int) -> None:
        self._channel, self._cell = channel, cell
        self._told_at = time.monotonic()

    def __enter__(self) -> _Told:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def take(self, event: Event) -> None:
        if event["event"] == "step" and time.monotonic() - self._told_at > _TELL_S:
            self._told_at = time.monotonic()
            about = {"node": self._channel.name, "cell": self._cell, "step": event["step"]}
            self._channel.send({"event": "cell-step", **about})

    def say(self, text: str) -> None:
        pass  # cautions are the same for many cells: docs tell of them
