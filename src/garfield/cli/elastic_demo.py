"""`garfield elastic demo`: real jobs on a local cluster, under two policies."""

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


def _panels() -> dict[str, list[Setting]]:
    from garfield.core.config import settings_of
    from garfield.elastic.local.demo import DemoSettings

    return {"Demonstration": list(settings_of(DemoSettings))}


def _demo(
    *,
    given: Annotated[dict[str, Any], Flags(_panels)],
    out: Annotated[
        Path | None,
        Parameter(metavar="DIR", help="Where it is kept. (runs/DATE-TIME-elastic-demo)"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train three real jobs on four slots, first as they start, then scaled by ERA.

    Jobs arrive over time. What comes of it is a table, and a picture of who had how many slots
    when. Periods are scaled down from minutes to seconds.
    """
    from garfield.core.config import made
    from garfield.elastic.local.demo import DemoSettings, run_demo
    from garfield.report.elastic_slots import draw_slots, jobs_table
    from garfield.runs.run_directory import RunDirectory
    from garfield.runs.user_files import loaded

    settings = made(DemoSettings, given)
    directory = RunDirectory(out or default_directory("elastic-demo"))
    directory.check_new()
    words = [word for file in loaded() for word in ("--load", str(file))]
    with progress() as bar:
        task = bar.add_task("starting", total=settings.jobs)

        def tell(policy: str, over: int, jobs: int) -> None:
            bar.update(task, description=f"{policy}: {over} of {jobs} jobs done", completed=over)

        result = run_demo(settings, directory.path, words, tell)
    directory.write_summary(result.summaries)
    picture = directory.path / "slots.png"
    with pictures_if_possible():
        draw_slots(result.histories, settings.slots, picture)
    if as_json:
        print_json(result.summaries)
        return
    out_ = console()
    out_.print(jobs_table(result.summaries))
    out_.print(f"The picture is {picture}; each cluster is kept beside it.", soft_wrap=True)


demo = spelt_out(_demo)
demo.__doc__ = " ".join((_demo.__doc__ or "").split())
