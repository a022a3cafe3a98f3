"""`garfield elastic operate`: the operator of a Kubernetes cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from garfield.cli.exit_codes import DONE
from garfield.cli.flags import Flags, in_panels, spelt_out
from garfield.cli.shared import AsJson, default_directory, print_json, print_line

if TYPE_CHECKING:
    from garfield.core.config import Setting
    from garfield.core.events import Event

_TITLES = {
    "": "Operator",
    "periods": "Periods",
    "election": "Election of a leader",
    "endpoints": "Endpoints",
}


def _panels() -> dict[str, list[Setting]]:
    from garfield.core.config import settings_of
    from garfield.elastic.operator.settings import OperatorSettings

    return in_panels(settings_of(OperatorSettings), _TITLES.__getitem__)


def _operate(
    *,
    given: Annotated[dict[str, Any], Flags(_panels)],
    out: Annotated[
        Path | None,
        Parameter(metavar="DIR", help="Where decisions are kept. (runs/DATE-TIME-operator)"),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Share out a Kubernetes cluster's GPUs among its ElasticJobs, until told to end.

    Several may run: one leads, the others take over. Every decision is kept with its snapshot in
    the directory, and `garfield elastic replay` takes it again.
    """
    from garfield.core.config import made, values_of
    from garfield.elastic.operator.serving import operate
    from garfield.elastic.operator.settings import OperatorSettings
    from garfield.runs.run_directory import RunDirectory

    settings = made(OperatorSettings, given)
    directory = RunDirectory(out or default_directory("operator"))
    with _log_to_stderr(), directory:
        directory.open(values_of(settings))

        def tell(event: Event) -> None:
            directory.record(event)
            if as_json:
                print_json(event)
            elif event["event"] == "operating":
                print_line(f"Operating {event['server']} by {event['policy']}.")

        operate(settings, tell)
    return DONE


operate = spelt_out(_operate)


@contextmanager
def _log_to_stderr() -> Iterator[None]:
    """Show what the operator logs, with times, as those who run services expect."""
    ours, handler = logging.getLogger("garfield.elastic"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.setLevel(level)
