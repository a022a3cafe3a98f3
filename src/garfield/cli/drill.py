"""`garfield drill`: rehearse faults on this machine, with an operator's own settings."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from garfield.cli.exit_codes import DONE, FAILED
from garfield.cli.shared import (
    AsJson,
    WholeNumber,
    console,
    names,
    print_error,
    print_json,
    print_note,
)

if TYPE_CHECKING:
    from garfield.apps.settings import Settings
    from garfield.launch.drill.rehearsal import DrillReport, Outcome
    from garfield.launch.drill.schedule import StageKind
    from garfield.runs.supervised import Channel


def drill(
    *,
    cluster: Annotated[
        Path | None,
        Parameter(metavar="FILE.toml", help="Rehearse this cluster, with ports of this machine."),
    ] = None,
    config: Annotated[
        Path | None, Parameter(metavar="FILE.toml", help="Or a run with these settings.")
    ] = None,
    by: Annotated[
        str | None,
        Parameter(
            help="How nodes talk: memory, tcp, tls, or simulation. (a cluster: tls if it has "
            "certificates, else tcp; a run: memory)"
        ),
    ] = None,
    faults: Annotated[
        WholeNumber, Parameter(help="How many.", validator=validators.Number(gte=0))
    ] = 8,
    only: Annotated[
        list[str] | None,
        Parameter(help="Only these, with commas: kill,freeze,cut. (all that are possible)"),
    ] = None,
    seed: Annotated[WholeNumber, Parameter(help="Fixes which faults strike whom, and when.")] = 0,
    out: Annotated[
        Path | None,
        Parameter(metavar="DIR", help="Keep what the nodes leave there. (kept if something broke)"),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Rehearse faults with settings of your own, on processes of this machine.

    Kills, freezes, cuts off and restarts nodes, fills their disk, sends strangers to their doors,
    and asks after each fault whether all go on; then ends the run, resumes it to a last step and
    looks at what is left. Your cluster's machines, ports and certificates are not touched. Exit
    codes: 0 all held, 1 something did not, 2 a setting is wrong.
    """
    from garfield.launch.drill.schedule import chosen_kinds
    from garfield.launch.drill.stages import drilled, schedule_of
    from garfield.launch.training import prepare
    from garfield.runs.run_directory import RunDirectory

    settings, stage = _wanted(cluster, config, by)
    settings = prepare(settings)
    kinds = chosen_kinds(stage, names(only or []))
    schedule = schedule_of(settings, stage, seed, faults, kinds)
    directory = out or Path(tempfile.mkdtemp(prefix="garfield-drill-"))
    RunDirectory(directory).check_new()
    report = drilled(settings, schedule, directory.resolve(), command=run_command, tell=_tell)
    if out is None and report.held:
        shutil.rmtree(directory, ignore_errors=True)
    return _show(report, directory, as_json)


def run_command(channel: Channel, words: Sequence[str], log: str, tmp: str) -> None:
    """Be ``garfield …`` in a process of its own, printing to `log`."""
    from garfield.cli.app import run

    opened = os.open(log, os.O_WRONLY)
    for standard in (1, 2):
        os.dup2(opened, standard)
    os.close(opened)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 (until the process ends)
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ["TMPDIR"] = tmp
    tempfile.tempdir = None  # what the forkserver found is not for this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    raise SystemExit(run(list(words)))


def _wanted(
    cluster: Path | None, config: Path | None, by: str | None
) -> tuple[Settings, StageKind]:
    """What is to be rehearsed, and on which stage."""
    from garfield.cli.train import read_settings
    from garfield.core.errors import ConfigError, UnknownName
    from garfield.launch.cluster import read_cluster
    from garfield.launch.drill.schedule import StageKind

    stages = {kind.value: kind for kind in StageKind}
    if by is not None and by not in stages:
        raise UnknownName("a way for nodes to talk", by, stages)
    if (cluster is None) == (config is None):
        raise ConfigError("Say what to rehearse: either --cluster FILE.toml or --config FILE.toml.")
    if cluster is not None:
        found = read_cluster(cluster)
        usual = StageKind.TCP if found.tls is None else StageKind.TLS
        return found.settings, stages[by] if by else usual
    assert config is not None
    settings = read_settings(config)
    usual = StageKind.SIMULATION if settings.simulate else StageKind.MEMORY
    return settings.updated(simulate=False), stages[by] if by else usual


def _tell(outcome: Outcome) -> None:
    for violation in outcome.violations:
        print_note(f"  {violation}")
    print_note(f"{outcome.what}: {'all go on' if not outcome.violations else 'see above'}")


def _show(report: DrillReport, directory: Path, as_json: bool) -> int:
    from garfield.report.drill_table import drill_table

    content = report.to_json()
    if as_json:
        print_json(content)
    else:
        out = console()
        out.print(drill_table(content["outcomes"]))
    if report.held:
        return DONE
    broken = ", ".join(f"{name} ({times})" for name, times in sorted(report.counts.items()))
    print_error(f"Not all held: {broken}. What the nodes left is in {directory}/.")
    return FAILED
