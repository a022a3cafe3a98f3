"""`garfield elastic simulate`: policies compared on the same jobs, on a virtual clock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from garfield.cli.exit_codes import DONE
from garfield.cli.flags import Flags, in_panels, spelt_out
from garfield.cli.shared import (
    AsJson,
    ConfigFile,
    console,
    default_directory,
    pictures_if_possible,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from garfield.core.config import Setting
    from garfield.elastic.simulator.settings import SimulationSettings

_TITLES = {"": "Policies", "workload": "Jobs", "cluster": "Cluster"}


def _panels() -> dict[str, list[Setting]]:
    from garfield.core.config import settings_of
    from garfield.elastic.simulator.settings import SimulationSettings

    return in_panels(settings_of(SimulationSettings), _TITLES.__getitem__)


def _simulate(
    *,
    given: Annotated[dict[str, Any], Flags(_panels)],
    out: Annotated[
        Path | None,
        Parameter(metavar="DIR", help="Where the run is kept. (runs/DATE-TIME-elastic)"),
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> int:
    """Compare policies on the same jobs, on a virtual clock, from profiles of real models.

    Jobs arrive, train, are scaled and end as their fitted profiles say; policies see only what
    jobs report. Leaves summary.json, pictures, and every decision with its snapshot, which
    `garfield elastic replay` takes again.
    """
    from garfield.report.elastic_plots import draw_policies
    from garfield.report.elastic_table import policies_table
    from garfield.runs.run_directory import RunDirectory

    settings = _settings(config, given)
    directory = RunDirectory(out or default_directory("elastic"))
    directory.check_new()
    summaries, series = _compared(settings, directory)
    with pictures_if_possible():
        draw_policies(series, summaries, _title(settings), directory.path)
    if as_json:
        print_json(summaries)
    else:
        console().print(policies_table(summaries))
        console().print(f"Kept in {directory.path}/", soft_wrap=True)
    return DONE


simulate = spelt_out(_simulate)
simulate.__doc__ = " ".join((_simulate.__doc__ or "").split())


def _settings(config: Path | None, given: dict[str, Any]) -> SimulationSettings:
    """The settings of the file, or the defaults; flags win."""
    from garfield.core.config import flattened, made, read_toml, settings_of
    from garfield.elastic.simulator.settings import SimulationSettings

    base = flattened(read_toml(config), settings_of(SimulationSettings)) if config else {}
    return made(SimulationSettings, base | given)


def _compared(
    settings: SimulationSettings, directory: Any
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Run every policy; its numbers and its time series, by its name."""
    from garfield.core.config import values_of
    from garfield.elastic.policy import parse
    from garfield.elastic.policy.decision_log import as_event
    from garfield.elastic.simulator.cluster import simulate as run
    from garfield.elastic.simulator.outcome import series_step
    from garfield.elastic.simulator.workload import workload_of

    policies = {name: parse(name) for name in settings.policies}
    jobs = workload_of(settings.workload)
    summaries, series = {}, {}
    with directory, progress() as bar:
        directory.open(values_of(settings))
        task = bar.add_task("simulating", total=len(policies))
        for name, policy in policies.items():
            bar.update(task, description=f"simulating {name}, {len(jobs)} jobs")
            outcome = run(
                policy,
                jobs,
                settings.cluster,
                every_s=series_step(jobs),
                tell=lambda *told, name=name: directory.record(as_event(name, *told)),
            )
            summaries[name], series[name] = outcome.summary(), outcome.points
            bar.advance(task)
        directory.write_summary(summaries)
    return summaries, series


def _title(settings: SimulationSettings) -> str:
    of = settings.workload
    return f"{of.schedule}, {of.jobs} jobs, {settings.cluster.gpus} GPUs, seed {of.seed}"
