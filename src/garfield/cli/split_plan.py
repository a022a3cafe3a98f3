"""`garfield split plan`: what each split would transfer and take, and which one is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from garfield.cli.flags import Flags, in_panels, spelt_out
from garfield.cli.shared import AsJson, console, print_json

if TYPE_CHECKING:
    from garfield.core.config import Setting

_TITLES = {"": "Planning", "servers": "Servers", "store": "Store"}


def _panels() -> dict[str, list[Setting]]:
    from garfield.core.config import settings_of
    from garfield.split.plan_view import PlanSettings

    return in_panels(settings_of(PlanSettings), _TITLES.__getitem__)


def _plan(
    *,
    given: Annotated[dict[str, Any], Flags(_panels)],
    picture: Annotated[
        Path | None, Parameter(metavar="FILE.png", help="Draw it there too; .svg and .pdf as well.")
    ] = None,
    as_json: AsJson = False,
) -> int | None:
    """Show what each split would transfer and take, and which one would be chosen.

    With --data and --server all is measured as a training would, which chooses the same unless
    it keeps features (--cache, --materialise). With less, it says what is not known. Says so where
    plain streaming is better.
    """
    from garfield.core.config import made
    from garfield.report.split_costs import costs_headline, costs_table, draw_costs
    from garfield.split.plan_view import PlanSettings, view

    found = view(made(PlanSettings, given))
    if picture is not None:
        draw_costs(found, picture)
    if as_json:
        print_json(found)
        return None
    out = console()
    out.print(costs_headline(found), style="bold", soft_wrap=True)
    out.print(costs_table(found))
    out.print(found.advice, soft_wrap=True)
    if found.not_known:
        out.print(found.not_known, soft_wrap=True)
    if picture is not None:
        out.print(f"The picture is {picture}.", soft_wrap=True)
    return None


plan = spelt_out(_plan)
