"""`garfield split put`: a folder of images into a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from garfield.cli.flags import Flags, in_panels, spelt_out
from garfield.cli.shared import AsJson, console, print_json, progress

if TYPE_CHECKING:
    from garfield.core.config import Setting


def _panels() -> dict[str, list[Setting]]:
    from garfield.core.config import settings_of
    from garfield.split.putting import PutSettings

    return in_panels(settings_of(PutSettings), lambda group: "Store" if group else "Packing")


def _put(
    folder: Annotated[Path, Parameter(help="A folder with a subfolder of images for each class.")],
    /,
    *,
    given: Annotated[dict[str, Any], Flags(_panels)],
    as_json: AsJson = False,
) -> int | None:
    """Pack a folder of images into a store, shuffled, many images to an object.

    A put that was interrupted goes on where it was.
    """
    from garfield.core.config import check_numbers, made
    from garfield.report.split_summary import size
    from garfield.split.putting import PutSettings, put

    settings = made(PutSettings, given)
    check_numbers(settings)
    with progress() as bar:
        task = bar.add_task("packing", total=None)
        summary = put(
            folder,
            settings,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        print_json(summary)
        return None
    console().print(
        f"{summary.images} images of {summary.classes} classes are in {summary.url}: "
        f"{summary.objects} objects, {size(summary.stored_bytes)}, "
        f"{size(summary.stored_bytes_per_image)} an image.",
        soft_wrap=True,
    )
    return None


put = spelt_out(_put)
