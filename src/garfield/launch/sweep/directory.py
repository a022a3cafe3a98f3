"""The directory that a grid of runs leaves behind.

    grid.json      what was asked for
    results.csv    one row a run; results.json the same, with curves
    tables.txt     what the command prints
    *.png          heat maps and curves
    runs/          a run directory for each cell, named after it and the digest of its settings

A cell is complete when its run directory holds `cell.json`. All else here is made from these, so
that nothing is lost but what was not yet complete, whenever the machine went down.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from garfield.core.errors import ConfigError
from garfield.core.files import write_json, write_text
from garfield.launch.sweep.cell_process import CELL
from garfield.report.sweep_results import CellResult, SweepResults
from garfield.report.sweep_rows import as_csv, rows

_FIELDS = (
    "status", "metric", "larger_is_better", "score", "best_score", "loss", "steps", "wall_s",
    "train_s", "error", "curve",
)  # fmt: skip


class SweepDirectory:
    """Where a grid's runs and results are kept. Use as a context: one sweep at a time has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: TextIO | None = None

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def grid(self) -> Path:
        return self.path / "grid.json"

    @property
    def results(self) -> Path:
        return self.path / "results.csv"

    def __enter__(self) -> SweepDirectory:
        if self.path.is_dir() and any(self.path.iterdir()) and not self.runs.is_dir():
            raise ConfigError(f"{self.path} is not empty, and holds no grid. Choose another --out.")
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("w")
        except OSError as problem:
            raise ConfigError(
                f"{self.path} cannot be written to: {problem.strerror or problem}."
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise ConfigError(
                f"Another sweep runs in {self.path}. Wait for it, or end it."
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def open(self, content: Mapping[str, Any]) -> None:
        """Write what was asked for."""
        write_json(self.grid, content)

    def complete(self) -> dict[str, Path]:
        """Run directories of complete cells, by the digests of their settings."""
        found = {path.parent.name.rpartition("-")[2]: path for path in self.runs.glob(f"*/{CELL}")}
        return {key: path.parent for key, path in found.items()}

    def read(
        self, path: Path, name: str, varied: Mapping[str, Any], seed: int
    ) -> CellResult | None:
        """What a complete cell has left; None if that cannot be read."""
        try:
            found = json.loads((path / CELL).read_text(encoding="utf-8"))
            fields = {field: found[field] for field in _FIELDS}
        except (OSError, ValueError, KeyError):
            return None  # written by another version, or by nobody of ours: it is run again
        return CellResult(name, varied, seed, **fields, directory=f"{self.runs.name}/{path.name}")

    def write_results(self, results: SweepResults) -> None:
        """Replace the table of all runs."""
        write_text(self.results, as_csv(results))

    def write_all(self, results: SweepResults, tables: str) -> None:
        """Replace the table of all runs, the same with curves, and the printed tables."""
        self.write_results(results)
        curves = [result.curve for result in results.results]
        told = [{**row, "curve": curve} for row, curve in zip(rows(results), curves, strict=True)]
        write_json(self.path / "results.json", told)
        write_text(self.path / "tables.txt", tables)
