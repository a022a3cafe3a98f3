"""`garfield variance`: do honest gradients of this model and data vary little enough for a rule?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from garfield.cli.flags import Flags, in_panels
from garfield.cli.shared import AsJson, WholeNumber, console, names, print_json, progress
from garfield.cli.train import read_settings

if TYPE_CHECKING:
    from garfield.apps.settings import Settings
    from garfield.core.config import Setting
    from garfield.gars import Rule
    from garfield.launch.variance import Measured

_GROUPS = ("learning", "samples")
_OTHERS = ("workers", "framework", "seed")


def _panels() -> dict[str, list[Setting]]:
    """Those settings of a run that change what honest workers send."""
    from garfield.apps.settings import all_settings

    wanted = [each for each in all_settings() if each.group in _GROUPS or each.name in _OTHERS]
    return in_panels(wanted, lambda group: group.capitalize() or "Run")


def variance(
    *,
    given: Annotated[dict[str, Any], Flags(_panels)],
    steps: Annotated[
        WholeNumber,
        Parameter(help="Steps of honest training.", validator=validators.Number(gte=1)),
    ] = 20,
    f: Annotated[
        WholeNumber | None,
        Parameter(help="Workers that may lie: they are left out. (as the file says, or 0)"),
    ] = None,
    rules: Annotated[
        list[str] | None, Parameter(help="Rules, with commas; all if not given.")
    ] = None,
    config: Annotated[
        Path | None, Parameter(metavar="FILE.toml", help="Settings of a run as TOML; flags win.")
    ] = None,
    threads: Annotated[
        WholeNumber | None,
        Parameter(
            help="Gradients computed at once. (all cores)", validator=validators.Number(gte=1)
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how much honest gradients vary, and say which rules bear it.

    A rule is sure of its direction only while Δ σ < |∇L|, with σ the deviation of honest
    gradients, |∇L| the length of their mean and Δ the rule's own factor (thesis, equations 3.12
    and 3.13). Trains honestly for some steps with your model, data and batch, in this process.
    """
    from garfield.report.variance_table import variance_json, variance_table, verdicts

    settings = _base(config).updated(**given, steps=steps)
    f = settings.numbers.f_w if f is None else f
    wanted = _rules(rules)
    measured = _measured(settings, f, threads or os.cpu_count() or 1)
    n, batch = measured.n, settings.learning.batch
    found = verdicts(wanted, measured.ratios, n=n, f=f, batch=batch)
    if as_json:
        values = settings.values()
        about = {name: values[name] for name in ("model", "data", "batch", "momentum", "seed")}
        told = variance_json(found, measured.steps, measured.ratios)
        print_json({"n": n, "f": f, **about, **told})
        return
    out = console()
    out.print(variance_table(found, measured.ratios))
    out.print(_caption(settings, measured), style="dim")


def _base(config: Path | None) -> Settings:
    from garfield.apps.settings import Settings

    return Settings() if config is None else read_settings(config)


def _rules(texts: list[str] | None) -> dict[str, Rule]:
    """Those named, or all robust ones whose Δ is known."""
    from garfield.gars import GARS, parse

    if texts is not None:
        return {name: parse(name) for name in names(texts)}
    return {name: rule for name, rule in GARS.items() if rule.ratio is not None}


def _measured(settings: Settings, f: int, threads: int) -> Measured:
    from garfield.launch.variance import measure_variance

    with progress() as bar:
        task = bar.add_task("training honestly", total=settings.steps)
        return measure_variance(
            settings, f, threads=threads, step=lambda done: bar.update(task, completed=done)
        )


def _caption(settings: Settings, measured: Measured) -> str:
    learning, steps = settings.learning, len(measured.steps)
    sent = "velocities" if learning.momentum else "gradients"
    return (
        f"{learning.model} on {settings.samples.data} ({settings.samples.partition}), batches of "
        f"{learning.batch}, momentum {learning.momentum:g}: what {measured.n - measured.f} honest "
        f"workers send ({sent}), measured at {steps} of {settings.steps} steps of honest training; "
        f"n = {measured.n}, f = {measured.f}. Measured: the middle one. A condition that fails is "
        "no failure of the rule, but its proof is void: a clever liar may turn it around."
    )
