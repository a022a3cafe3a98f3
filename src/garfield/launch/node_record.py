"""What one node of a cluster leaves behind: config.toml, metrics.jsonl, summary.json.

Its checkpoints stand beside them. The summary is written however the node
ends: done, told to end, failed, or failed by its peers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from garfield.core.config import read_toml
from garfield.core.errors import ConfigError, GarfieldError, RunError
from garfield.core.events import Event
from garfield.launch.cluster import Cluster
from garfield.launch.node_checkpoints import KEPT_WHEN_RESUMED, NodeCheckpoints
from garfield.report.node_summary import summarise_node
from garfield.report.summary import versions
from garfield.runs.checkpoints import Checkpoints
from garfield.runs.run_directory import RunDirectory
from garfield.runs.user_files import recorded


class NodeRecord:
    """Records one node's run. Use as a context around it; without a path nothing is kept."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        out: Path | None,
        resume: Path | None,
        *,
        fresh: bool = False,
    ) -> None:
        """What is in `out` is gone on with, unless it is to be `fresh`; in `resume` it must be."""
        self._settings, self._name = cluster.settings, name
        cluster.settings.recording.check()
        self._is_server = name in cluster.settings.server_names
        path = resume or out
        self._directory = None if path is None else RunDirectory(path)
        self._started, self._opened = datetime.now(timezone.utc), False
        self.checkpoints = NodeCheckpoints()
        """The node's checkpoints, and which of them a server goes on from."""
        if self._directory is not None:
            self._prepare(self._directory, must_be_there=resume is not None, fresh=fresh)

    def _prepare(self, directory: RunDirectory, *, must_be_there: bool, fresh: bool) -> None:
        self.checkpoints = NodeCheckpoints(directory.checkpoints)
        if must_be_there:
            directory.check_old()
        elif fresh or not directory.config.is_file():
            directory.check_new()
            return
        self._check_own(directory)
        saved = Checkpoints(directory.checkpoints).saved(self._name)
        if self._is_server and (saved or must_be_there):
            self.checkpoints = self.checkpoints.resumed([self._name], [self._name])

    def _check_own(self, directory: RunDirectory) -> None:
        """Refuse to go on with what another node left, or a run of something else."""
        told = next((event["node"] for event in directory.events() if "node" in event), self._name)
        if told != self._name:
            raise ConfigError(
                f"{directory.path} holds what {told} left. Give {self._name} one of its own."
            )
        before, wanted = read_toml(directory.config), self._settings.values()
        for name in KEPT_WHEN_RESUMED:
            if before.get(name) != wanted[name]:
                raise ConfigError(
                    f"{directory.path} holds a run whose {name} is {before.get(name)}, and here "
                    f"it is {wanted[name]}. Choose another --out."
                )

    def __enter__(self) -> NodeRecord:
        return self

    def take(self, event: Event) -> None:
        """Record an event; the first says that the node listens: mistakes before leave nothing."""
        if self._directory is None:
            return
        if not self._opened:
            self._open(self._directory)
        self._directory.record(event)

    def _open(self, directory: RunDirectory) -> None:
        before = directory.events()
        directory.open({**self._settings.values(), **recorded()}, self._settings.recording.log)
        self._opened = True
        if before:
            steps = [event["step"] for event in before if isinstance(event.get("step"), int)]
            told = max(steps, default=0)
            step = self.checkpoints.start.step if self._is_server else told
            directory.record({"event": "resumed", "step": step})

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._directory is None or not self._opened:
            return
        self._directory.__exit__()
        role, s = "server" if self._is_server else "worker", self._settings
        summary = summarise_node(self._directory.events(), self._name, role, s.worker_names)
        failure = str(error) if isinstance(error, GarfieldError) else None
        self._write_summary(kind is None, {
            **summary, "app": s.app, "model": s.learning.model, "data": s.samples.data,
            "seed": s.seed, "total_steps": s.steps, "excluded": list(s.nodes.exclude),
            "versions": versions(), "settings": s.values(),
            "interrupted": isinstance(error, (SystemExit, KeyboardInterrupt)),
            "failed": failure or summary["diverged"],
            "started": self._started.isoformat(timespec="seconds"),
        })  # fmt: skip

    def _write_summary(self, is_well: bool, summary: Mapping[str, Any]) -> None:
        """Write it; where that is impossible, say so unless something else went wrong before."""
        assert self._directory is not None
        try:
            self._directory.write_summary(summary)
        except RunError:
            if is_well:
                raise
