"""What became of the models that workers judged: LiuBei's filters, server by server.

In an experiment it is known who lies. A false rejection is an honest server's model refused by
an honest worker: it costs that worker a pull, and mostly a backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from garfield.core.events import Event
from garfield.report.run_history import RunHistory

Counts = Mapping[str, tuple[int, int]]
"""How many of each server's models were judged, and how many of those refused."""


def all_of(told: Iterable[Event]) -> dict[str, Any]:
    """Add up what several workers report; empty if they do not judge models."""
    sums: dict[str, list[int]] = {}
    for event in told:
        for server, counts in (event.get("filters") or {}).items():
            sums[server] = [a + b for a, b in zip(sums.get(server, (0, 0)), counts, strict=True)]
    return {"filters": dict(sorted(sums.items()))} if sums else {}


def filtering(history: RunHistory) -> dict[str, Any]:
    """Count for the summary, by server, and the shares refused of honest and of lying ones."""
    told = [
        event
        for part in history.parts
        for node, event in part.last_of_each().items()
        if node in history.roster.honest
    ]
    counts = all_of(told).get("filters", {})
    if not counts:
        return {}
    lying = {server for server in counts if server in history.roster.liars}
    return {
        "filters": {
            "models": {name: {"judged": a, "refused": b} for name, (a, b) in counts.items()},
            "false_rejections": _share(counts, set(counts) - lying),
            "lies_rejected": _share(counts, lying),
        }
    }


def _share(counts: Counts, servers: set[str]) -> float | None:
    judged = sum(counts[server][0] for server in servers)
    return sum(counts[server][1] for server in servers) / judged if judged else None
