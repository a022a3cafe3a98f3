"""Workers that have had no part in any step for long: told once, with the remedy.

A rule that leaves rows out may leave out the same worker every time, because it lies or because
its data differ from all others': then nothing is learnt from them, and nothing else says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

LONG = 100
"""Steps without a part that are long."""


class UnheardWorkers:
    """Counts for how many steps on end each worker has had no part."""

    def __init__(self, known_liars: Collection[str] = (), long: int = LONG) -> None:
        """Of `known_liars`, as in an experiment, nothing is told."""
        self._liars, self._long = frozenset(known_liars), long
        self._streaks: dict[str, int] = {}

    def after_step(self, used: Collection[str] | None, workers: Iterable[str]) -> list[str]:
        """Warnings of those who have become unheard for long with this step."""
        if used is None:
            return []
        warnings = []
        for worker in workers:
            streak = self._streaks[worker] = (
                0 if worker in used else self._streaks.get(worker, 0) + 1
            )
            if streak == self._long and worker not in self._liars:
                warnings.append(
                    f"{worker} had no part in the last {streak} steps: it was left out by the "
                    "rule, or silent. If it is honest, nothing is learnt from its data: take a "
                    "rule that hears all, such as centered-clipping or trimmed-mean, or lower "
                    f"--f-workers. If it is not: --exclude {worker}."
                )
        return warnings
