"""The file that describes a job to `garfield elastic submit`.

    name = "digits"
    command = ["python", "train.py", "--epochs", "20"]
    max-workers = 4
    batch = 32

`command` is what each worker runs, in the directory of the file unless it says another; the script
trains with `garfield.elastic.job`. What is asked for (`JobRequest`) stands beside it, or in a table
[request].
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

from garfield.core.config import flattened, made, read_toml, settings_of
from garfield.core.errors import ConfigError
from garfield.elastic.policy.jobs import JobRequest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class JobFile:
    """A job, as its user describes it."""

    name: str = ""
    """How to call it. (as the file, without its ending)"""
    command: tuple[str, ...] = ()
    """What each worker runs: a program and its arguments."""
    directory: str = "."
    """Where it runs, as seen from the file."""
    environment: tuple[str, ...] = ()
    """Further variables of its environment: NAME=value."""
    request: JobRequest = field(default_factory=JobRequest)

    def __post_init__(self) -> None:
        wrong = next((each for each in self.environment if "=" not in each[1:]), None)
        if wrong is not None:
            raise ConfigError(f"environment holds {wrong!r}. Write NAME=value.")

    @property
    def variables(self) -> dict[str, str]:
        """Further variables of a worker's environment."""
        return dict(each.split("=", 1) for each in self.environment)


def read_job_file(path: Path) -> JobFile:
    """The job that a file describes, its paths made absolute; ConfigError for what cannot run."""
    job = made(JobFile, flattened(read_toml(path), settings_of(JobFile)))
    name = job.name or path.stem
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot name a job. Take letters, digits and . _ - (at most 63 characters)."
        )
    if not job.command:
        raise ConfigError(f'{path} says no command. Add: command = ["python", "train.py"].')
    directory = (path.parent / job.directory).resolve()
    if not directory.is_dir():
        raise ConfigError(f"{path} runs in {directory}, which is no directory.")
    return replace(
        job, name=name, directory=str(directory), command=_found(job.command, directory, path)
    )


def _found(command: tuple[str, ...], directory: Path, file: Path) -> tuple[str, ...]:
    """The command with its program as found from here: the daemon may know other places."""
    program = shutil.which(command[0], path=None) or shutil.which(str(directory / command[0]))
    if program is None:
        raise ConfigError(f"{file} runs {command[0]}, which is no program here. Give its path.")
    script = command[1] if len(command) > 1 else ""
    if script.endswith(".py") and not (directory / script).is_file():
        raise ConfigError(f"{file} runs {script}, and there is no such file in {directory}.")
    return (str(Path(program).absolute()), *command[1:])
