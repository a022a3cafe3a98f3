"""Which job a script's process belongs to, told by variables of its environment.

Whoever starts workers sets them (`environment_of`). A script that is started by hand has none, and
trains alone, as the one member of a job of its own, which is kept beside its checkpoints; so is
that of workers which torchrun starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from garfield.core.errors import ConfigError
from garfield.elastic.job.coordination import Coordination
from garfield.elastic.job.in_pod import is_in_pod, open_in_pod
from garfield.elastic.job.on_sqlite import SqliteCoordination

JOB, MEMBER = "GARFIELD_ELASTIC_JOB", "GARFIELD_ELASTIC_MEMBER"
CHECKPOINTS = "GARFIELD_ELASTIC_CHECKPOINTS"
_ALONE = "alone"
_SET_BY_TORCHRUN = "TORCHELASTIC_RUN_ID"


@dataclass(frozen=True)
class JobAccess:
    """A job, and who in it this process is."""

    coordination: Coordination
    member: str | None
    """None for a worker whose place torchrun tells."""
    checkpoint_dir: str | None = None
    """Where checkpoints go, unless the script says otherwise."""


def environment_of(job: Path, member: str, checkpoints: Path | None = None) -> dict[str, str]:
    """What to add to a worker's environment; `job` is the file of its `SqliteCoordination`."""
    found = {JOB: str(job), MEMBER: member}
    return found if checkpoints is None else {**found, CHECKPOINTS: str(checkpoints)}


def job_of_this_process(
    checkpoint_dir: str | None, environment: Mapping[str, str] = os.environ
) -> JobAccess:
    """The job that the environment tells, or one of its own."""
    if JOB in environment:
        if not environment.get(MEMBER):
            raise ConfigError(f"{JOB} is set and {MEMBER} is not. Give each worker a name.")
        coordination = _opened(environment[JOB], environment)
        return JobAccess(coordination, environment[MEMBER], environment.get(CHECKPOINTS))
    if checkpoint_dir is None:
        alone = SqliteCoordination(":memory:")
    else:
        Path(checkpoint_dir).mkdir(parents=True, exist_ok=True)
        alone = SqliteCoordination(Path(checkpoint_dir) / "job.sqlite")
    if _SET_BY_TORCHRUN in environment:
        return JobAccess(alone, None)
    newest = alone.read().generation.number
    if not alone.propose([_ALONE], after=newest, reopen=True):
        raise ConfigError(f"Another process has just begun to train with {checkpoint_dir}.")
    return JobAccess(alone, _ALONE)


def _opened(job: str, environment: Mapping[str, str]) -> Coordination:
    if is_in_pod(job):
        return open_in_pod(job, environment)
    return SqliteCoordination(job, create=False)
