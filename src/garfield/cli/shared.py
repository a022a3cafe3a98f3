"""What the commands share: options, where runs are kept, the two consoles, errors, names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter, validators

from garfield.core.files import as_json
from garfield.core.naming import split_at

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_quiet = False

AsJson: TypeAlias = Annotated[
    bool,
    Parameter(name="--json", help="Print JSON for scripts instead of tables.", show_default=False),
]

ConfigFile: TypeAlias = Annotated[
    Path | None, Parameter(metavar="FILE.toml", help="Settings as TOML; flags win.")
]
ResumedRun: TypeAlias = Annotated[
    Path | None, Parameter(metavar="DIR", help="Go on with the run kept there.")
]


def _whole_number(kind: type[int], tokens: Any) -> int:
    try:
        return int(tokens[0].value)  # cyclopts would round 3.5
    except ValueError:
        raise ValueError(f"it must be a whole number, got {tokens[0].value!r}.") from None


WholeNumber: TypeAlias = Annotated[int, Parameter(converter=_whole_number)]
TorchThreads: TypeAlias = Annotated[
    WholeNumber | None,
    Parameter(help="Threads of torch. (all cores)", validator=validators.Number(gte=1)),
]


def default_directory(what: str) -> Path:
    """A directory named after now, that is not there yet."""
    from garfield.runs.run_directory import new_path

    return new_path(what)


def settings_file(config: ConfigFile, resume: ResumedRun) -> Path | None:
    """The file with the settings to begin with: that of the run that is resumed, or the given."""
    from garfield.core.errors import ConfigError
    from garfield.runs.run_directory import RunDirectory

    if resume is None:
        return config
    if config is not None:
        raise ConfigError("--resume takes its settings from the run itself: leave --config away.")
    directory = RunDirectory(resume)
    directory.check_old()
    return directory.config


def is_quiet() -> bool:
    """Whether results and errors are all that is wanted."""
    return _quiet


def be_quiet(wanted: bool = True) -> None:
    """Print results and errors only from now on, or notes and progress again."""
    global _quiet
    _quiet = wanted


def console(*, stderr: bool = False) -> Console:
    """Standard output, or standard error: see `garfield.report.console`."""
    from garfield.report.console import console

    out = console(stderr=stderr)
    out.quiet = stderr and _quiet
    return out


def progress() -> Progress:
    """A bar on standard error, gone when done: standard output holds results only."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    err = console(stderr=True)
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)


def print_json(value: Any) -> None:
    """Print a value as it would stand in a file of JSON."""
    print_line(as_json(value, indent=2))


def print_line(text: str) -> None:
    """Write a line of the result to standard output, for whoever reads along."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_note(text: str) -> None:
    """Write a line that is no result to standard error, unless results are all that is wanted."""
    if not _quiet:
        _to_stderr(text)


def print_cause(text: str) -> None:
    """Write a line that belongs to an error to standard error, however little is wanted."""
    _to_stderr(text)


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def print_error(text: str) -> None:
    """Write what went wrong to standard error, as one line; red on a terminal."""
    line = f"Error: {' '.join(text.split())}"
    _to_stderr(f"\033[31m{line}\033[0m" if sys.stderr.isatty() else line)


@contextmanager
def pictures_if_possible() -> Iterator[None]:
    """Draw, or note what is to be installed for it: results do not hang on pictures."""
    from garfield.core.errors import MissingDependency

    try:
        yield
    except MissingDependency as missing:
        print_note(str(missing))


def names(texts: list[str]) -> list[str]:
    """Names given one by one or with commas between: commas inside brackets are parameters."""
    found = map(str.strip, split_at(",", ",".join(texts)))
    return list(dict.fromkeys(filter(None, found)))
