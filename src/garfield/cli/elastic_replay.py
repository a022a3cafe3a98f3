"""`garfield elastic replay`: recorded decisions taken again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from garfield.cli.exit_codes import DONE, FAILED
from garfield.cli.shared import AsJson, console, print_error, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from garfield.elastic.policy.decision_log import Replayed


def replay(
    run: Annotated[Path, Parameter(metavar="DIR", help="A run's directory.")],
    *,
    policy: Annotated[
        str | None, Parameter(metavar="NAME", help="Ask this policy. (the one that decided)")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Take recorded decisions again, by the same policy or another, and compare.

    Nothing is changed anywhere. The policy that decided must decide the same again: if it does
    not, this fails. With another one it shows what that would have given to whom.
    """
    from garfield.core.errors import ConfigError
    from garfield.elastic.policy.decision_log import replayed
    from garfield.report.elastic_replay import replay_table
    from garfield.runs.run_directory import RunDirectory

    found = replayed(RunDirectory(run).events(), policy)
    if not found:
        raise ConfigError(
            f"{run} holds no recorded decisions. Name the directory of an elastic run."
        )
    if as_json:
        print_json(_told(found))
    else:
        console().print(replay_table(found))
    agreed = sum(each.agrees for each in found)
    if not as_json:
        console().print(f"{agreed} of {len(found)} decisions are the same.")
    if policy is None and agreed < len(found):
        print_error(
            f"{len(found) - agreed} decisions differ from those that were recorded. The policy, or "
            "the version of garfield, is not the one that took them."
        )
        return FAILED
    return DONE


def _told(found: Sequence[Replayed]) -> list[dict[str, Any]]:
    return [
        {
            "at_s": each.at_s,
            "asked": each.asked,
            "agrees": each.agrees,
            "differing": {
                name: {"recorded": old, "now": new} for name, (old, new) in each.differing.items()
            },
        }
        for each in found
    ]
