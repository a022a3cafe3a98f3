"""`garfield split train`: fine-tuning over a split, or the plain way to compare with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from garfield.cli.exit_codes import DONE, FAILED, INTERRUPTED
from garfield.cli.flags import Flags, in_panels, spelt_out
from garfield.cli.shared import (
    AsJson,
    ConfigFile,
    ResumedRun,
    TorchThreads,
    console,
    default_directory,
    pictures_if_possible,
    print_error,
    print_json,
    print_note,
    progress,
    settings_file,
)

if TYPE_CHECKING:
    from garfield.core.config import Setting
    from garfield.core.events import Event
    from garfield.runs.run_directory import RunDirectory
    from garfield.split.settings import FineTuning

_TITLES = {
    "": "Fine-tuning",
    "loading": "Split and loading",
    "servers": "Servers",
    "store": "Store",
    "recording": "What is written",
}


def _panels() -> dict[str, list[Setting]]:
    from garfield.core.config import settings_of
    from garfield.split.settings import FineTuning

    return in_panels(settings_of(FineTuning), _TITLES.__getitem__)


def _train(
    *,
    given: Annotated[dict[str, Any], Flags(_panels)],
    out: Annotated[
        Path | None, Parameter(metavar="DIR", help="Where the run is kept. (runs/DATE-TIME-split)")
    ] = None,
    config: ConfigFile = None,
    resume: ResumedRun = None,
    threads: TorchThreads = None,
    all_in_store: Annotated[
        bool,
        Parameter(help="Train at the server from first to last, as ALL_IN_COS of the thesis."),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Fine-tune a model on images in a store, its first layers running beside them.

    Without --split it is planned before every epoch from the measured bandwidth, and --baseline
    trains the plain way, streaming images. Ctrl-C ends the run in good order; --resume goes on
    with the batch that was next.
    """
    from garfield.runs.run_directory import RunDirectory

    settings = settings_from(config, resume, given)
    if all_in_store:
        _check_all_in_store(settings, resume, threads)
    directory = RunDirectory(resume or out or default_directory("split"))
    is_first = os.environ.get("RANK", "0") == "0"  # torchrun sets it; the first one tells
    if resume is None and is_first:
        directory.check_new()
    interrupted, failure = _run(
        settings, directory, resume is not None, threads, all_in_store=all_in_store
    )
    if is_first:
        _show(settings, directory, interrupted, failure, as_json)
    return FAILED if failure is not None else INTERRUPTED if interrupted else DONE


train = spelt_out(_train)
train.__doc__ = " ".join((_train.__doc__ or "").split())


def settings_from(config: Path | None, resume: Path | None, given: dict[str, Any]) -> FineTuning:
    """The settings of the run that is resumed, or of the file, or the defaults; flags win."""
    from garfield.core.config import flattened, made, read_toml, settings_of
    from garfield.split.settings import FineTuning

    file = settings_file(config, resume)
    base = flattened(read_toml(file), settings_of(FineTuning)) if file else {}
    return made(FineTuning, base | given)


def _check_all_in_store(settings: FineTuning, resume: Path | None, threads: int | None) -> None:
    """Refuse what a training beside the store does not do, before anything is made."""
    from garfield.split.all_in_store import check_can_be_had

    flags = {"--resume": resume, "--threads": threads}
    check_can_be_had(settings, [flag for flag, given in flags.items() if given is not None])


def _run(
    settings: FineTuning,
    directory: RunDirectory,
    resumed: bool = False,
    threads: int | None = None,
    *,
    all_in_store: bool = False,
) -> tuple[bool, str | None]:
    """Train; whether it was interrupted, and what went wrong if something did."""
    from garfield.core.errors import ConfigError, GarfieldError
    from garfield.runs.interrupts import Interrupts

    with progress() as bar, Interrupts() as interrupts:
        task = bar.add_task("starting", total=None)

        def tell(event: Event) -> None:
            if event["event"] in ("began", "resumed"):
                total = settings.epochs * event["batches"]
                bar.update(task, total=total, completed=event["step"])
            elif event["event"] == "extracting":
                told = f"extracting features, {event['done']} of {event['total']} objects"
                bar.update(task, description=told)
            elif event["event"] == "batch":
                told = (
                    f"epoch {event['epoch'] + 1}/{settings.epochs}  split {event['split']}  "
                    f"loss {event['loss']:.3f}"
                )
                bar.update(task, description=told, completed=event["step"])

        try:
            with interrupts.allowed():
                import torch

                from garfield.split.all_in_store import train_in_store
                from garfield.split.training import fine_tune

                if threads is not None:
                    torch.set_num_threads(threads)
                if all_in_store:
                    train_in_store(settings, directory, tell)
                else:
                    fine_tune(settings, directory, tell, resume=resumed)
        except KeyboardInterrupt:
            return True, None
        except ConfigError:
            raise
        except GarfieldError as problem:
            return False, str(problem)
    return False, None


def _show(
    settings: FineTuning,
    directory: RunDirectory,
    interrupted: bool,
    failure: str | None,
    as_json: bool,
) -> None:
    """Write and print what came of it."""
    from garfield.report.split_plots import draw_split
    from garfield.report.split_summary import split_summary, split_table
    from garfield.report.summary import versions
    from garfield.runs.checkpoints import SUFFIX

    events = directory.events()
    summary = split_summary(events) | {
        "interrupted": interrupted,
        "failure": failure,
        "versions": versions(("garfield", "numpy", "torch", "httpx")),
        "settings": settings.without_secrets(),
    }
    if directory.path.is_dir():
        directory.write_summary(summary)
        with pictures_if_possible():
            title = f"{summary['model']}, split {summary['split']}"
            draw_split(events, title, directory.path, settings.recording.plots)
    if as_json:
        print_json(summary)
    elif summary["iterations"]:
        out = console()
        out.print(split_table(summary))
        out.print(f"Kept in {directory.path}/", soft_wrap=True)
    if failure is not None:
        print_error(failure)
    if (failure is not None or interrupted) and any(directory.checkpoints.glob(f"*{SUFFIX}")):
        print_note(f"Go on with: garfield split train --resume {directory.path}")
