"""What a worker's environment tells it."""

import pytest

from garfield.core.errors import ConfigError
from garfield.elastic.job.environment import (
    JOB,
    environment_of,
    job_of_this_process,
)
from garfield.elastic.job.on_sqlite import SqliteCoordination


def test_a_worker_is_told_its_job_its_name_and_where_checkpoints_go(tmp_path):
    job = tmp_path / "job.sqlite"
    SqliteCoordination(job).close()
    access = job_of_this_process(None, environment_of(job, "w3", tmp_path / "checkpoints"))
    assert (access.member, access.checkpoint_dir) == ("w3", str(tmp_path / "checkpoints"))
    access.coordination.close()
    without = job_of_this_process(None, environment_of(job, "w4"))
    assert without.checkpoint_dir is None
    without.coordination.close()


def test_a_job_without_a_name_for_its_worker_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="GARFIELD_ELASTIC_MEMBER is not"):
        job_of_this_process(None, {JOB: str(tmp_path / "job.sqlite")})
