"""`garfield sweep`: a grid of runs on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from garfield.cli.exit_codes import DONE, FAILED, INTERRUPTED, REFUSED
from garfield.cli.shared import (
    AsJson,
    WholeNumber,
    console,
    default_directory,
    is_quiet,
    print_cause,
    print_error,
    print_json,
    print_note,
)

if TYPE_CHECKING:
    from garfield.launch.sweep import Sweep


def sweep(
    grid: Annotated[
        Path,
        Parameter(
            metavar="GRID.toml", help="Settings as for train --config, and lists of them in [grid]."
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        Parameter(metavar="DIR", help="Where runs and results are kept. (runs/DATE-TIME-sweep)"),
    ] = None,
    skip_impossible: Annotated[
        bool, Parameter(help="Leave out cells that cannot be run, and record them.")
    ] = False,
    processes: Annotated[
        WholeNumber | None,
        Parameter(
            help="Cells that run at once, sharing the cores. (one for each core)",
            validator=validators.Number(gte=1),
        ),
    ] = None,
    checkpoints: Annotated[bool, Parameter(help="Keep each cell's last model.")] = False,
    no_pictures: Annotated[bool, Parameter(help="Draw no heat maps and no curves.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run a grid of settings, simulated, and show what came of it in tables and pictures.

    Every combination of the lists in the file's [grid] is a cell, a run of its own. Impossible
    ones are told before anything starts. Cells that are complete in --out are not run again: give
    the same command to go on after Ctrl-C, a full disk or a failure. Exit codes: 0 done, diverged
    runs included; 1 a cell failed, or the disk was full; 2 the grid is wrong; 130 interrupted.
    """
    from garfield.launch.sweep.grid import parse
    from garfield.launch.sweep.planning import plan
    from garfield.launch.sweep.running import SweepOptions, folder, read, run_plan

    content = read(grid)
    planned = plan(parse(content, folder(grid)))
    refusal = planned.refusal(skip_impossible=skip_impossible)
    if refusal:
        *each, head = refusal
        for line in each:
            print_cause(line)
        print_error(head)
        return REFUSED
    options = SweepOptions(processes, checkpoints, not no_pictures, not is_quiet())
    return _show(run_plan(planned, content, out or default_directory("sweep"), options), as_json)


def _show(done: Sweep, as_json: bool) -> int:
    """Print the results; the exit code that goes with them."""
    from garfield.report.sweep_tables import sweep_tables

    if as_json:
        print_json(done.rows())
    else:
        out = console()
        for table in sweep_tables(done.results):
            out.print(table)
            out.print()
        out.print(f"Kept in {done.path}/", soft_wrap=True)
    for failed in done.failures:
        where = f" ({done.path / failed.directory / 'failure.txt'})" if failed.directory else ""
        print_cause(f"{failed.name} failed: {failed.error}{where}")
    if done.interrupted:
        print_note(
            f"{done.unfinished} cells are left. Give the same command with --out {done.path}"
        )
        return INTERRUPTED
    if done.stopped:
        print_error(done.stopped)
        return FAILED
    if done.failures:
        print_error(f"{len(done.failures)} of {len(done.results.results)} cells failed.")
        return FAILED
    return DONE
