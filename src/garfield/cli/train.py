"""`garfield train`: a whole training run on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from garfield.cli.exit_codes import DONE, FAILED, INTERRUPTED
from garfield.cli.flags import Flags, in_panels
from garfield.cli.shared import (
    AsJson,
    ConfigFile,
    ResumedRun,
    WholeNumber,
    console,
    default_directory,
    print_error,
    print_json,
    print_note,
    settings_file,
)

if TYPE_CHECKING:
    from garfield.apps.settings import Settings
    from garfield.core.config import Setting
    from garfield.launch.training import RunResult
    from garfield.report.live import LiveDisplay


def _panels() -> dict[str, list[Setting]]:
    """The settings of every run, then those of each application that is known by now."""
    from garfield.apps import APPLICATIONS
    from garfield.apps.settings import all_settings

    def title(group: str) -> str:
        return f"Only for {group}" if group in APPLICATIONS else group.capitalize() or "Run"

    return in_panels(all_settings(), title)


def train(
    *,
    given: Annotated[dict[str, Any], Flags(_panels)],
    out: Annotated[
        Path | None, Parameter(metavar="DIR", help="Where the run is kept. (runs/DATE-TIME-APP)")
    ] = None,
    config: ConfigFile = None,
    resume: ResumedRun = None,
    threads: Annotated[
        WholeNumber | None,
        Parameter(
            help="Threads of each process; more than one pays for large models. "
            "(1; all cores with --simulate)",
            validator=validators.Number(gte=1),
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Train a model on this machine, with some of the nodes lying if you like.

    Starts real processes that pull vectors from each other, unless --simulate. Leaves a
    directory with the settings, metrics, checkpoints, pictures and a summary. Ctrl-C ends the
    run in good order, a second one at once. Exit codes: 0 done, 1 failed or diverged, 2 a
    setting is wrong, 130 interrupted.
    """
    from garfield.apps.own_parts import anchored
    from garfield.launch.training import prepare, resumption, train
    from garfield.runs.run_directory import RunDirectory

    base = _base(config, resume)
    settings = prepare(base.updated(**anchored(given, Path())))
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
    return show(result, directory.path, as_json)


def display_of(settings: Settings, title: str | None = None) -> LiveDisplay:
    """What shows a run on standard error: standard output holds results only."""
    from garfield.launch.displays import display_of

    return display_of(settings, title, console(stderr=True))


def show(result: RunResult, path: Path, as_json: bool) -> int:
    """Print the result; the exit code that goes with it."""
    from garfield.report.summary_table import summary_table

    if as_json:
        print_json(result.summary)
    else:
        out = console()
        out.print(summary_table(result.summary))
        out.print(f"Kept in {path}/", soft_wrap=True)
    if result.failure:
        print_error(result.failure)
        return FAILED
    if result.interrupted:
        if result.summary["interrupted"] and result.summary["steps"]:
            print_note(f"Go on with: garfield train --resume {path}")
        return INTERRUPTED
    return DONE


def _base(config: Path | None, resume: Path | None) -> Settings:
    """The settings of the run that is resumed, or of the file given, or the defaults."""
    from garfield.apps.settings import Settings

    file = settings_file(config, resume)
    return Settings() if file is None else read_settings(file)


def read_settings(path: Path) -> Settings:
    """Settings of a file, and the user's own files that it names."""
    from garfield.launch.settings_files import read_settings

    return read_settings(path)
