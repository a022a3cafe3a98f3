"""`garfield split demo`: plain fine-tuning and a split, side by side over a slow link."""

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
    print_note,
    progress,
)

if TYPE_CHECKING:
    from garfield.core.config import Setting
    from garfield.core.events import Event
    from garfield.split.demo import DemoResult, DemoSettings


def _panels() -> dict[str, list[Setting]]:
    from garfield.core.config import settings_of
    from garfield.split.demo import DemoSettings

    return {"Demonstration": list(settings_of(DemoSettings))}


def _demo(
    *,
    given: Annotated[dict[str, Any], Flags(_panels)],
    out: Annotated[
        Path | None, Parameter(metavar="DIR", help="Where it is kept. (runs/DATE-TIME-split-demo)")
    ] = None,
    as_json: AsJson = False,
) -> int | None:
    """Fine-tune both ways over a slow link, with a store of its own, and compare.

    A real OpenStack Swift holds real images on loopback, EfficientNet-Lite0 comes with weights
    trained on ImageNet, and the link between them and the client is slow.
    """
    from garfield.core.config import made
    from garfield.runs.run_directory import RunDirectory
    from garfield.split.demo import DemoSettings, run_demo

    settings = made(DemoSettings, given)
    directory = RunDirectory(out or default_directory("split-demo"))
    directory.check_new()
    directory.path.mkdir(parents=True, exist_ok=True)
    with progress() as bar:
        task = bar.add_task("starting", total=None)
        name = ""

        def tell(event: Event) -> None:
            nonlocal name
            if event["event"] == "setting up":
                bar.update(task, description=f"setting up {event['what']}")
            elif event["event"] == "run":
                name = f"{event['number'] + 1}/{event['of']} {event['name']}"
                bar.update(task, description=name)
            elif event["event"] == "began":
                bar.update(task, total=settings.epochs * event["batches"], completed=0)
            elif event["event"] == "batch":
                told = f"{name}  loss {event['loss']:.2f}"
                bar.update(task, description=told, completed=event["step"])

        result = run_demo(settings, directory.path, tell)
    _show(settings, result, directory.path, as_json)
    return None


demo = spelt_out(_demo)


def _show(settings: DemoSettings, result: DemoResult, path: Path, as_json: bool) -> None:
    from garfield.report.split_comparison import comparison_sentences, comparison_table
    from garfield.report.split_plots import draw_comparison

    title = f"EfficientNet-Lite0 on images stored as {settings.stored_as}, over {settings.link}"
    picture = path / "comparison.png"
    with pictures_if_possible():
        draw_comparison(result.runs, title, picture)
    if result.note:
        print_note(result.note)
    if as_json:
        print_json(result)
        return
    out = console()
    out.print(title, style="bold")
    out.print(comparison_table(result.runs))
    for sentence in comparison_sentences(result.runs):
        out.print(sentence)
    out.print(f"The picture is {picture}; each run is kept beside it.", soft_wrap=True)
