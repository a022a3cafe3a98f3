"""What is promised of every pre-aggregation, whatever it makes of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from garfield.gars import chain
from garfield.kernels import read
from garfield.preaggregation import Stage
from garfield.testing.promises import Check, close, expect, keep_all, promise_of, spread_out
from garfield.testing.rules import RULE_CHECKS, SEED


def check_stage(stage: Stage) -> None:
    """Hold a pre-aggregation to the contract, by itself and in front of the median.

    AssertionError names the promise that it breaks.
    """
    keep_all(STAGE_CHECKS, stage.seeded(SEED), stage.name)


def rows_out(stage: Stage) -> None:
    """It makes as many rows as `rows_after` says, as long as those that it was given."""
    for n, d in ((1, 1), (2, 3), (11, 40), (16, 5)):
        made = _through(stage, spread_out(n, d, seed=0))  # the stage itself refuses other shapes
        expect(np.isfinite(made).all(), f"Of {n} finite rows of {d} numbers some are not finite.")


def repeatable(stage: Stage) -> None:
    """The same rows and seed make the same rows."""
    rows = spread_out(11, 40, seed=1)
    same = np.array_equal(_through(stage, rows), _through(stage, rows))
    expect(same, "11 rows of 40 numbers give two different results.")


def inputs_unchanged(stage: Stage) -> None:
    """The rows it is given are left as they were."""
    rows = spread_out(11, 40, seed=2)
    before = rows.copy()
    _through(stage, rows)
    expect(np.array_equal(rows, before), "11 rows of 40 numbers differ afterwards.")


def translation(stage: Stage) -> None:
    """What it makes moves with the rows, if and only if `translates` says so."""
    rows, shift = spread_out(11, 40, seed=3, dtype=np.float64), np.linspace(-5, 5, 40)
    moved = close(_through(stage, rows + shift), _through(stage, rows) + shift, rows, 1e-9)
    does = "It moves with them" if moved else "It does not move with them"
    expect(moved == stage.translates, f"{does}: register it translates={moved}.")


def scaling(stage: Stage) -> None:
    """What it makes scales with the rows, where `scales` says so."""
    rows = spread_out(11, 40, seed=4, dtype=np.float64)
    for factor in (-3.0, 1e-12, 1e12) if stage.scales else ():
        scaled = _through(stage, rows * factor)
        same = close(scaled, _through(stage, rows) * factor, rows * factor, 1e-9)
        expect(same, f"11 rows of 40 numbers times {factor:g} give another result.")


def _before_the_median(check: Check[Any]) -> Callable[[Stage], None]:
    def before(stage: Stage) -> None:
        check(chain(stage, "median").seeded(SEED))

    before.__doc__ = f"Before the median: {promise_of(check)}."
    before.__name__ = f"{check.__name__}_before_the_median"
    return before


STAGE_CHECKS = (
    rows_out, repeatable, inputs_unchanged, translation, scaling,
    *map(_before_the_median, RULE_CHECKS),
)  # fmt: skip
"""Each is a function of a stage whose randomness is fixed (`Stage.seeded`)."""


def _through(stage: Stage, rows: Any) -> Any:
    """What comes out, for two faults where there are enough rows for them."""
    return stage(read(rows)[0], f=min(2, (len(rows) - 1) // 2)).matrix()
