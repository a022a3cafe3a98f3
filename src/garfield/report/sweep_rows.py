"""The results of a grid as rows, one a run: what `results.csv` holds."""

from __future__ import annotations

import csv
import io
from typing import Any

from garfield.report.sweep_results import ACCURACY, SEED, SweepResults, shown_value

_FOUND = ("loss", "steps", "wall_s", "train_s", "error", "directory")
_SCORES = ("metric", "score", "best_score")


def rows(results: SweepResults) -> list[dict[str, Any]]:
    """A dictionary for each run: what was varied, its seed, and what came of it.

    Where settings are tuned, `chosen` says whether it ran at those that were chosen. Where runs
    are judged by another metric than accuracy, its name and scores stand beside accuracies.
    """
    found = []
    others = _SCORES if any(each.metric != ACCURACY for each in results.results) else ()
    for result in results.results:
        row = {**result.varied, SEED: result.seed}
        if results.tuning.names:
            row["chosen"] = result.status != "impossible" and results.is_chosen(result)
        right = result.metric == ACCURACY
        row["status"] = result.status
        row["accuracy"] = result.score if right else None
        row["best_accuracy"] = result.best_score if right else None
        found.append(row | {name: getattr(result, name) for name in (*others, *_FOUND)})
    return found


def as_csv(results: SweepResults) -> str:
    """The rows as a CSV file; what is not known stays empty."""
    text = io.StringIO()
    found = rows(results)
    writer = csv.DictWriter(text, list(found[0]) if found else [], lineterminator="\n")
    writer.writeheader()
    for row in found:
        writer.writerow({name: _text(value) for name, value in row.items()})
    return text.getvalue()


def _text(value: Any) -> Any:
    if value is None:
        return ""
    return shown_value(value) if isinstance(value, (bool, list, tuple)) else value
