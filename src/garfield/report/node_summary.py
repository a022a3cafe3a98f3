"""The numbers of one node of a cluster: what it knows of the run by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from garfield.core.events import Event
from garfield.report.run_history import Roster, read_history
from garfield.report.summary import summarise


def summarise_node(
    events: Sequence[Event], name: str, role: str, workers: Sequence[str]
) -> dict[str, Any]:
    """Summarise what one node reported; a worker has neither accuracy nor throughput.

    Bytes and faults are this node's own. It is believed, as there is nobody else to ask.
    """
    history = read_history(events, Roster([name] if role == "server" else [], workers))
    summary = summarise(history)
    if role == "worker":
        told = [e["step"] for part in history.parts for e in part.events if e["event"] == "worker"]
        summary["steps"] = max(told, default=0)
    return {"node": name, "role": role, **summary}
