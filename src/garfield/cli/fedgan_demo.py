"""`garfield fedgan demo`: sampling and weights on and off, beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from garfield.cli.flags import Flags, spelt_out
from garfield.cli.shared import (
    AsJson,
    console,
    default_directory,
    pictures_if_possible,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from garfield.core.config import Setting
    from garfield.core.events import Event


def _panels() -> dict[str, list[Setting]]:
    from garfield.core.config import settings_of
    from garfield.fedgan.settings import DemoSettings

    return {"Demonstration": list(settings_of(DemoSettings))}


def _demo(
    *,
    given: Annotated[dict[str, Any], Flags(_panels)],
    out: Annotated[
        Path | None, Parameter(metavar="DIR", help="Where it is kept. (runs/DATE-TIME-fedgan-demo)")
    ] = None,
    as_json: AsJson = False,
) -> int | None:
    """Train four times on skewed data: sampling and weights on and off, with pictures."""
    from garfield.core.config import made
    from garfield.fedgan.demo import run_demo
    from garfield.fedgan.settings import DemoSettings
    from garfield.runs.run_directory import RunDirectory

    settings = made(DemoSettings, given)
    directory = RunDirectory(out or default_directory("fedgan-demo"))
    directory.check_new()
    with progress() as bar:
        task = bar.add_task("starting", total=settings.rounds)
        name = ""

        def tell(event: Event) -> None:
            nonlocal name
            if event["event"] == "run":
                name = f"{event['number'] + 1}/{event['of']} {event['name']}"
                bar.update(task, description=name, completed=0)
            elif event["event"] == "round":
                bar.update(task, description=name, completed=event["round"] + 1)

        found = run_demo(settings, directory.path, tell)
    _show(found, directory.path, as_json)
    return None


demo = spelt_out(_demo)


def _show(found: dict[str, dict[str, Any]], path: Path, as_json: bool) -> None:
    from garfield.report.fedgan_plots import draw_seen_by_several
    from garfield.report.fedgan_summary import FedganHistory, comparison_table
    from garfield.runs.run_directory import RunDirectory

    with pictures_if_possible():
        histories = {name: FedganHistory.of(RunDirectory(path / name).events()) for name in found}
        draw_seen_by_several(histories, path)
    if as_json:
        print_json(found)
        return
    out = console()
    out.print(comparison_table(found))
    out.print(
        f"Images of each, a row: {path}/images.png; what each server saw: {path}/seen.png.",
        soft_wrap=True,
    )
