"""`garfield check my.py`: the contracts, on everything that a file registers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from garfield.cli.exit_codes import DONE, FAILED
from garfield.cli.shared import AsJson, print_json, print_line, progress

if TYPE_CHECKING:
    from garfield.testing.files import Examined, Finding


def check(
    *files: Annotated[
        str, Parameter(help="Python files of yours, or models in them.", metavar="FILE.py[:NAME]")
    ],
    data: Annotated[
        str | None, Parameter(help="What models are tried on: any --data of garfield train.")
    ] = None,
    loss: Annotated[
        str | None, Parameter(help="What they are trained by: any --loss of garfield train.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Hold your own rules, attacks, pre-aggregations and models to what is asked of ours.

    A file is imported, and all that it registers is put through the contracts that those of the
    library pass: symmetries, bounds, rows that are missing or not finite, every attack, and so
    on. What fails is told with the promise, the line and the input. A model that is not registered
    is named with its data: garfield check my.py:Net --data my.py:load. The exit code is 0 if all
    is kept, 1 if not, and 2 if a file cannot be imported or registers nothing.
    """
    from garfield.core.errors import ConfigError
    from garfield.runs.user_files import is_reference
    from garfield.testing import check_file

    if not files:
        raise ConfigError("check needs a file, as in: garfield check my.py.")
    found: list[Examined] = []
    with progress() as bar:
        task = bar.add_task("", total=None)
        for file in files:
            if is_reference(file):
                bar.update(task, description=f"model {file}")
                found.append(_own_model(file, data, loss))
            else:
                found += check_file(Path(file), lambda what: bar.update(task, description=what))
    if as_json:
        print_json([_as_json(each) for each in found])
    else:
        for each in found:
            print_line(_as_text(each))
    return FAILED if any(each.broken for each in found) else DONE


def _own_model(reference: str, data: str | None, loss: str | None) -> Examined:
    from garfield.apps.groups import Learning, Samples
    from garfield.core.errors import ConfigError
    from garfield.launch.checked_model import check_model_on

    if data is None:
        home = reference.rpartition(":")[0]
        raise ConfigError(
            f"{reference} needs data to be tried on, as in: garfield check {reference} "
            f"--data {home}:load."
        )
    return check_model_on(Learning(model=reference, loss=loss), Samples(data=data))


def _as_json(each: Examined) -> dict[str, Any]:
    return {
        "kind": each.kind, "name": each.name, "file": each.file, "line": each.line,
        "promises": each.promises, "broken": [vars(finding) for finding in each.broken],
        "untried": each.untried,
    }  # fmt: skip


def _as_text(each: Examined) -> str:
    if each.untried:
        return f"{each.kind} {each.name} ({_near(each.file)}:{each.line}): {each.untried}"
    kept = each.promises - len(each.broken)
    total = f"all {each.promises}" if not each.broken else f"{kept} of {each.promises}"
    lines = [f"{each.kind} {each.name} ({_near(each.file)}:{each.line}): {total} promises kept"]
    alike: dict[str, list[Finding]] = {}
    for finding in each.broken:
        alike.setdefault(re.sub(r"[\d.,]+", "#", finding.why), []).append(finding)
    for finding, *others in alike.values():
        lines.append(f"  ✗ {finding.promise}.")
        lines.append(f"    {' '.join(finding.why.split())}")
        given = f", tried with {finding.given}" if finding.given else ""
        lines.append(f"    at {_near(finding.file)}:{finding.line}{given}")
        if others:
            lines.append(f"    and {len(others)} more of its promises, likewise")
    return "\n".join(lines)


def _near(file: str) -> str:
    """A path as it is seen from here, if it is below."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
