"""`garfield fedgan train`: a GAN on images that are divided among many devices."""

from __future__ import annotations

from dataclasses import replace
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
    from garfield.fedgan.settings import FedganSettings
    from garfield.fedgan.training import Training
    from garfield.runs.run_directory import RunDirectory

_TITLES = {
    "": "Networks and images",
    "population": "Devices",
    "training": "Rounds",
    "lies": "Devices that lie",
    "privacy": "Differential privacy",
    "processes": "Servers and devices as processes",
    "record": "What is judged and kept",
    "recording": "What is written",
}


def _panels() -> dict[str, list[Setting]]:
    from garfield.core.config import settings_of
    from garfield.fedgan.settings import FedganSettings

    return in_panels(settings_of(FedganSettings), _TITLES.__getitem__)


def _train(
    *,
    given: Annotated[dict[str, Any], Flags(_panels)],
    out: Annotated[
        Path | None, Parameter(metavar="DIR", help="Where the run is kept. (runs/DATE-TIME-fedgan)")
    ] = None,
    config: ConfigFile = None,
    resume: ResumedRun = None,
    threads: TorchThreads = None,
    as_json: AsJson = False,
) -> int:
    """Train a GAN on images divided among many devices.

    Up to 16 devices, and their servers, are processes that talk over gRPC with TLS; more of them,
    or with --simulate, run in this process. The same seed gives the same networks either way.
    Ctrl-C ends the run in good order; --resume goes on after the last round.
    """
    from garfield.runs.run_directory import RunDirectory

    settings = _in_one_form(settings_from(config, resume, given))
    directory = RunDirectory(resume or out or default_directory("fedgan"))
    if resume is None:
        directory.check_new()
    interrupted, failure = _run(settings, directory, resume is not None, threads)
    _show(settings, directory, interrupted, failure, as_json)
    return FAILED if failure is not None else INTERRUPTED if interrupted else DONE


train = spelt_out(_train)
train.__doc__ = " ".join((_train.__doc__ or "").split())


def settings_from(
    config: Path | None, resume: Path | None, given: dict[str, Any]
) -> FedganSettings:
    """The settings of the run that is resumed, or of the file, or the defaults; flags win."""
    from garfield.core.config import flattened, made, read_toml, settings_of
    from garfield.fedgan.settings import FedganSettings

    file = settings_file(config, resume)
    base = flattened(read_toml(file), settings_of(FedganSettings)) if file else {}
    return made(FedganSettings, base | given)


def _in_one_form(settings: FedganSettings) -> FedganSettings:
    """The settings, with a choice between processes and simulation where none was made."""
    if settings.simulate is None and settings.simulated:
        print_note(
            f"{settings.population.devices} devices are simulated in this process, one after the "
            "other; up to 16 can be processes of their own."
        )
    return replace(settings, simulate=settings.simulated)


def _run(
    settings: FedganSettings, directory: RunDirectory, resumed: bool, threads: int | None
) -> tuple[bool, str | None]:
    """Train; whether it was interrupted, and what went wrong if something did."""
    from garfield.core.errors import RunError
    from garfield.runs.interrupts import Interrupts

    with progress() as bar, Interrupts() as interrupts:
        task = bar.add_task("starting", total=settings.training.rounds)
        shown = {"fid": ""}

        def tell(event: Event) -> None:
            if event["event"] == "evaluated" and event.get("fid") is not None:
                shown["fid"] = f"  {event['fid_label']} {event['fid']:.1f}"
            elif event["event"] in ("began", "resumed"):
                bar.update(task, completed=event["round"])
                if event["note"]:
                    print_note(event["note"])
            elif event["event"] == "lost":
                print_note(event["error"])
            elif event["event"] == "done" and event.get("note"):
                print_note(event["note"])
            elif event["event"] == "round":
                over = event["round"] + 1
                losses = _losses(event)
                told = f"round {over}/{settings.training.rounds}  losses {losses}{shown['fid']}"
                bar.update(task, description=told, completed=over)

        try:
            with interrupts.allowed():
                import torch

                from garfield.fedgan.training import train

                if threads is not None:
                    torch.set_num_threads(threads)
                train(settings, directory, tell, resume=resumed, kind=_kind(settings))
        except KeyboardInterrupt:
            return True, None
        except RunError as problem:
            return False, str(problem)
    return False, None


def _kind(settings: FedganSettings) -> type[Training]:
    from garfield.fedgan.training import Training

    if settings.simulate:
        return Training
    from garfield.fedgan.nodes.process_training import ProcessTraining

    return ProcessTraining


def _losses(event: Event) -> str:
    if event["generator_loss"] is None:
        return "–/–"
    return f"{event['generator_loss']:.3f}/{event['discriminator_loss']:.3f}"


def _show(
    settings: FedganSettings,
    directory: RunDirectory,
    interrupted: bool,
    failure: str | None,
    as_json: bool,
) -> None:
    """Write and print what came of it."""
    from garfield.core.config import values_of
    from garfield.report.fedgan_plots import draw_fedgan
    from garfield.report.fedgan_summary import fedgan_summary, fedgan_table
    from garfield.report.summary import versions

    events = directory.events()
    summary = fedgan_summary(events) | {
        "interrupted": interrupted,
        "failure": failure,
        "versions": versions(("garfield", "numpy", "torch")),
        "settings": values_of(settings),
    }
    if directory.config.is_file():  # else nothing has begun, and nothing stands in the way
        directory.write_summary(summary)
        with pictures_if_possible():
            title = f"{summary['gan']} on {summary['data']}"
            draw_fedgan(events, title, directory.path, settings.recording.plots)
    if as_json:
        print_json(summary)
    elif summary["rounds"]:
        out = console()
        out.print(fedgan_table(summary))
        out.print(f"Kept in {directory.path}/", soft_wrap=True)
    if failure is not None:
        print_error(failure)
    if (failure is not None or interrupted) and summary["rounds"]:
        print_note(f"Go on with: garfield fedgan train --resume {directory.path}")
