"""Fit the simulator's profiles: ``python -m tools.fit_profiles DATA OUT.json``.

DATA is a folder with `traces/<model>/` of the artifact of Pollux (OSDI 2021): `placements.csv` (1
to 16 replicas, by how many are on which node), `scalability.csv` (6 to 64 replicas), and
`validation-<batch>.csv` (a metric over iterations, for each global batch).

The coefficients of `StepTime` are found by Levenberg–Marquardt on the logarithms of step time and
of step − sync time, the latter being the gradient's alone: errors are relative, as times span
three orders of magnitude. Rows with a held-out number of replicas take no part; the errors on
them are printed and kept beside the coefficients. Samples to the target never fall as batches
grow.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from garfield.core.files import write_json
from garfield.core.types import Matrix
from garfield.elastic.simulator.step_time import StepTime

HELD_OUT = (3, 6, 10, 14, 24, 48)
"""Numbers of replicas whose rows are kept for judging."""
SOURCE = (
    "Fitted by tools/fit_profiles.py to measurements published with Qiao et al., Pollux, OSDI 2021 "
    "(github.com/petuum/adaptdl, branch osdi21-artifact): NVIDIA T4 GPUs, four to a node."
)
MOST_GAMMA = 10.0


class Row(NamedTuple):
    """One measurement."""

    replicas: int
    nodes: int
    batch: int
    step_s: float
    grad_s: float


def rows_of(folder: Path) -> list[Row]:
    """All measurements of a model, of both files."""
    found = []
    for each in _csv(folder / "placements.csv"):
        per_node = [int(digit) for digit in each["placement"]]
        found.append(_row(sum(per_node), len(per_node), each))
    for each in _csv(folder / "scalability.csv"):
        found.append(_row(int(each["num_replicas"]), int(each["num_nodes"]), each))
    return found


def fitted(rows: Sequence[Row]) -> StepTime:
    """The coefficients that fit best, of several starts."""
    batches = np.array([row.batch for row in rows], dtype=float)
    grads = np.array([row.grad_s for row in rows])
    slope, level = np.polyfit(batches, grads, 1)
    first = [max(level, 1e-4), max(slope, 1e-7)]
    several = [row.step_s - row.grad_s for row in rows if row.nodes > 1]
    sync = max(float(np.median(several)), 1e-4)
    starts = [
        np.array([*np.log([*first, sync / 5, sync / 50, sync, sync / 50]), _to_open(gamma)])
        for gamma in (1.2, 2.0, 4.0)
    ]
    best = min((_descended(start, rows) for start in starts), key=lambda found: found[1])
    return _coefficients(best[0])


def errors(model: StepTime, rows: Sequence[Row]) -> dict[str, float]:
    """How far predicted step times are off, relative to the measured ones."""
    off = np.array([model.step_s(r.replicas, r.nodes, r.batch) / r.step_s for r in rows])
    return {
        "rows": len(rows),
        "median_percent": round(100 * float(np.median(np.abs(off - 1))), 1),
        "mean_percent": round(100 * float(np.mean(np.abs(off - 1))), 1),
        "rms_log": round(float(np.sqrt(np.mean(np.log(off) ** 2))), 3),
    }


def samples_to_target(folder: Path) -> tuple[float, dict[int, int]]:
    """The metric that every validated batch reached, and the samples that each took to reach it."""
    curves = {
        int(path.stem.split("-")[1]): [
            (int(row["iteration"]), float(row["metric"])) for row in _csv(path)
        ]
        for path in folder.glob("validation-*.csv")
    }
    rises = all(curve[-1][1] > curve[0][1] for curve in curves.values())
    sign = 1 if rises else -1  # an error rate falls
    target = min(max(sign * metric for _, metric in curve) for curve in curves.values())
    needed = {
        batch: batch * next(step for step, metric in curve if sign * metric >= target)
        for batch, curve in sorted(curves.items())
    }
    return sign * target, never_falling(needed)


def never_falling(needed: dict[int, int]) -> dict[int, int]:
    """Samples by batch, ascending: neighbours that fall are pooled to their geometric mean.

    A larger batch needs no fewer samples; where single runs say so, it is noise.
    """
    pools: list[tuple[float, int]] = []  # mean logarithm, count
    for samples in needed.values():
        mean, count = math.log(samples), 1
        while pools and pools[-1][0] > mean:
            other, many = pools.pop()
            mean, count = (mean * count + other * many) / (count + many), count + many
        pools.append((mean, count))
    values = [round(math.exp(mean)) for mean, count in pools for _ in range(count)]
    return dict(zip(needed, values, strict=True))


def profile_of(folder: Path) -> dict[str, Any]:
    """All that is shipped of one model."""
    rows = rows_of(folder)
    kept = [row for row in rows if row.replicas not in HELD_OUT]
    model = fitted(kept)
    target, needed = samples_to_target(folder)
    return {
        "step_time": [float(f"{value:.6g}") for value in astuple(model)],
        "largest_batch": max(row.batch for row in rows),
        "target": target,
        "samples_to_target": {str(batch): samples for batch, samples in needed.items()},
        "fit": errors(model, kept),
        "held_out": errors(model, [row for row in rows if row.replicas in HELD_OUT]),
    }


def _coefficients(found: Matrix) -> StepTime:
    gamma = 1 + (MOST_GAMMA - 1) / (1 + math.exp(-found[6]))
    return StepTime(*map(float, np.exp(found[:6])), gamma)


def _to_open(gamma: float) -> float:
    share = (gamma - 1) / (MOST_GAMMA - 1)
    return math.log(share / (1 - share))


def _residuals(found: Matrix, rows: Sequence[Row]) -> Matrix:
    model = _coefficients(found)
    step = [math.log(model.step_s(r.replicas, r.nodes, r.batch) / r.step_s) for r in rows]
    grad = [math.log(model.compute_s(r.batch) / r.grad_s) for r in rows]
    return np.array(step + grad)


def _descended(start: Matrix, rows: Sequence[Row], rounds: int = 60) -> tuple[Matrix, float]:
    """Levenberg–Marquardt with slopes by differences."""
    found, damping = start, 1e-2
    off = _residuals(found, rows)
    for _ in range(rounds):
        slopes = np.stack(
            [(_residuals(found + 1e-5 * axis, rows) - off) / 1e-5 for axis in np.eye(len(found))],
            axis=1,
        )
        square = slopes.T @ slopes
        while damping < 1e8:
            step = np.linalg.solve(square + damping * np.eye(len(found)), -slopes.T @ off)
            tried = np.clip(found + step, -30, 5)
            after = _residuals(tried, rows)
            if after @ after < off @ off:
                break
            damping *= 4
        else:
            break
        gain = 1 - (after @ after) / (off @ off)
        found, off, damping = tried, after, damping / 3
        if gain < 1e-7:
            break
    return found, float(off @ off)


def _row(replicas: int, nodes: int, told: dict[str, str]) -> Row:
    step_s, sync_s = float(told["step_time"]), float(told["sync_time"])
    return Row(replicas, nodes, int(told["local_bsz"]), step_s, max(step_s - sync_s, 1e-6))


def _csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    models = {}
    for folder in sorted(path for path in (given.data / "traces").iterdir() if path.is_dir()):
        models[folder.name] = profile_of(folder)
        print(folder.name, models[folder.name])
    write_json(given.out, {"source": SOURCE, "held_out": HELD_OUT, "models": models})


if __name__ == "__main__":
    main()
