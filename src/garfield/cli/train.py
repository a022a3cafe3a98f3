"""`garfield train`: a whole training run on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from garfield.cli.flags import with_flags
from garfield.cli.shared import AsJson, console, print_json

if TYPE_CHECKING:
    from garfield.launch.settings import Settings
    from garfield.launch.training import RunResult
    from garfield.report.live import LiveDisplay

FAILED, INTERRUPTED = 1, 130


@with_flags
def train(
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the run is kept. (runs/DATE-TIME-APP)")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Settings as TOML; flags win.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Go on with the run kept there.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of each process; more than one pays for large models. "
            "(1; all cores with --simulate)",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    **flags: Any,
) -> None:
    """Train a model on this machine, with some of the nodes lying if you like.

    Starts real processes that pull vectors from each other, unless --simulate. Leaves a
    directory with the settings, metrics, checkpoints, pictures and a summary. Ctrl-C ends the
    run in good order, a second one at once. Exit codes: 0 done, 1 failed or diverged, 2 a
    setting is wrong, 130 interrupted.
    """
    from garfield.launch.training import prepare, resumption, train
    from garfield.runs.run_directory import RunDirectory

    base = _base(config, resume)
    given = {name: value for name, value in flags.items() if value is not None}
    settings = prepare(base.updated(**given))
    if resume is None:
        directory = RunDirectory(out or default_directory(settings.app))
        directory.check_new()
        checkpoints = None
    else:
        directory = RunDirectory(resume)
        checkpoints = resumption(settings, directory, base)
    threads = threads or ((os.cpu_count() or 1) if settings.simulate else 1)
    result = train(
        settings, directory, display_of(settings), checkpoints=checkpoints, threads=threads
    )
    show(result, directory.path, as_json)


def default_directory(what: str) -> Path:
    """Named after now, to the second."""
    from datetime import datetime

    return Path("runs") / f"{datetime.now():%Y-%m-%d-%H%M%S}-{what}"


def display_of(settings: Settings, title: str | None = None) -> LiveDisplay:
    """On standard error, so that standard output holds results only."""
    import time

    from rich.console import Console

    from garfield.launch.training import roster_of
    from garfield.launch.training import title as title_of
    from garfield.report.live import Status, display_for

    status = Status(roster_of(settings), settings.steps)
    err = Console(stderr=True, highlight=False)
    return display_for(status, title or title_of(settings), err, time.monotonic)


def show(result: RunResult, path: Path, as_json: bool) -> None:
    """The result, and the exit code that goes with it."""
    from garfield.report.summary_table import summary_table

    if as_json:
        print_json(result.summary)
    else:
        out = console()
        out.print(summary_table(result.summary))
        out.print(f"Kept in {path}/", soft_wrap=True)
    if result.failure:
        typer.secho(f"Error: {' '.join(result.failure.split())}", fg=typer.colors.RED, err=True)
        raise typer.Exit(FAILED)
    if result.interrupted:
        if result.summary["steps"]:
            typer.echo(f"Go on with: garfield train --resume {path}", err=True)
        raise typer.Exit(INTERRUPTED)


def _base(config: Path | None, resume: Path | None) -> Settings:
    """Defaults, then what a file says: of the run that is resumed, or the one given."""
    from garfield.core.errors import ConfigError
    from garfield.launch.settings import Settings
    from garfield.runs.run_directory import RunDirectory

    if resume is None:
        return Settings() if config is None else _read(config)
    if config is not None:
        raise ConfigError("--resume takes its settings from the run itself: leave --config away.")
    directory = RunDirectory(resume)
    directory.check_old()
    return _read(directory.config)


def _read(path: Path) -> Settings:
    """Settings of a file, and the user's own files that it names."""
    from garfield.launch.settings import Settings, read_toml
    from garfield.launch.user_files import without_files

    return Settings().updated(**without_files(read_toml(path), path.parent))
