"""Checkpoints of an elastic training: what it goes on from if no worker is left.

Files bear the number of the generation that wrote them, so that no half of a job writes over
another's, and count only once the job's pointer has moved to them by compare-and-set. Writing goes
on beside the training, from a copy in memory.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from garfield.core.errors import ConfigError, RunError
from garfield.elastic.job.coordination import (
    CheckpointPointer,
    Coordination,
)
from garfield.elastic.job.state import TrainingState
from garfield.runs.checkpoints import Checkpoint, Checkpoints, read_checkpoint

_log = logging.getLogger("garfield.elastic.job")
_PREFIX = "generation"


class CheckpointWriter:
    """The checkpoints of one job, written by one of its workers at a time."""

    def __init__(self, directory: Path, coordination: Coordination) -> None:
        self._checkpoints, self._coordination = Checkpoints(directory), coordination
        self._writing: threading.Thread | None = None

    def start(self, state: TrainingState, generation: int) -> None:
        """Write in the background; passed over while an earlier one is being written."""
        if self._writing is not None and self._writing.is_alive():
            _log.info("No checkpoint of step %d: the one before is being written.", state.step)
            return
        self._writing = threading.Thread(
            target=self._write, args=(state.copied(), generation), name="garfield-checkpoint"
        )
        self._writing.start()

    def save(self, state: TrainingState, generation: int) -> None:
        """Write, and wait until it counts."""
        self.close()
        self._write(state.copied(), generation)

    def load(self, state: TrainingState, pointer: CheckpointPointer) -> None:
        """Go on from a checkpoint."""
        path = Path(pointer.path)
        if not path.is_absolute():
            path = self._checkpoints.directory / path
        found = read_checkpoint(path).state
        try:
            state.load(found)
        except KeyError as missing:
            raise ConfigError(
                f"{path} is no checkpoint of an elastic training: {missing}."
            ) from None

    def close(self) -> None:
        """Wait for the one that is being written."""
        if self._writing is not None:
            self._writing.join()

    def _write(self, state: Mapping[str, Any], generation: int) -> None:
        step, name = int(state["step"]), f"{_PREFIX}-{generation}"
        try:
            before = self._coordination.read().checkpoint
            if before is not None and (before.generation, before.step) >= (generation, step):
                return
            nothing = np.empty(0, np.float32)  # all is in the state, with the types it has
            self._checkpoints.save(name, Checkpoint(step, nothing, state))
            path = self._checkpoints.saved(name)[step]
            if self._coordination.move_checkpoint(
                CheckpointPointer(generation, step, path.name), after=before
            ):
                self._remove_older(generation)
            else:
                _log.warning("Step %d of generation %d was overtaken.", step, generation)
        except RunError as problem:  # a full disk ends no training
            _log.warning("%s", problem)

    def _remove_older(self, generation: int) -> None:
        for path in self._checkpoints.directory.glob(f"{_PREFIX}-*"):
            number = path.name.split("-")[1]
            if number.isdecimal() and int(number) < generation:
                path.unlink(missing_ok=True)
