"""What one node of a cluster leaves behind: config.toml, metrics.jsonl, summary.json.

A server's checkpoints stand beside them. The summary is written however the node
ends: done, told to end, failed, or failed by its peers.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType

from garfield.core.errors import GarfieldError
from garfield.core.events import Event
from garfield.launch.cluster import Cluster
from garfield.launch.server_checkpoints import ServerCheckpoints
from garfield.launch.user_files import recorded
from garfield.report.node_summary import summarise_node
from garfield.report.summary import versions
from garfield.runs.run_directory import RunDirectory


class NodeRecord:
    """Records one node's run. Use as a context around it; without a path nothing is kept."""

    def __init__(self, cluster: Cluster, name: str, out: Path | None, resume: Path | None) -> None:
        self._settings, self._name = cluster.settings, name
        self._is_server = name in cluster.settings.server_names
        path = resume or out
        self._directory = None if path is None else RunDirectory(path)
        self._started, self._opened = datetime.now(timezone.utc), False
        self.checkpoints = ServerCheckpoints()
        """Checkpoints of a server, and which of them it goes on from."""
        if self._directory is not None:
            self._prepare(self._directory, resumed=resume is not None)

    def _prepare(self, directory: RunDirectory, *, resumed: bool) -> None:
        if self._is_server:
            self.checkpoints = ServerCheckpoints(directory.checkpoints)
        if not resumed:
            directory.check_new()
            return
        directory.check_old()
        if self._is_server:
            self.checkpoints = self.checkpoints.resumed([self._name], [self._name])

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
        directory.open({**self._settings.values(), **recorded()})
        self._opened = True
        if before:
            told = max(event.get("step", 0) for event in before)
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
        self._directory.write_summary({
            **summary, "app": s.app, "model": s.learning.model, "data": s.samples.data,
            "seed": s.seed, "total_steps": s.steps, "excluded": list(s.nodes.exclude),
            "versions": versions(),
            "interrupted": isinstance(error, (SystemExit, KeyboardInterrupt)),
            "failed": failure or summary["diverged"],
            "started": self._started.isoformat(timespec="seconds"),
        })  # fmt: skip
