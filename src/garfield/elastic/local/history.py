"""What a cluster's jobs did, from the events of its `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from garfield.core.events import Event


@dataclass
class JobHistory:
    """One job, from its submission on."""

    name: str
    submitted_s: float
    workers: list[tuple[float, int]] = field(default_factory=list)
    """When it had how many processes: each holds until the next."""
    training_s: float | None = None
    """When its workers first said that they train."""
    phase: str = ""
    """How it ended; empty before."""
    ended_s: float | None = None
    jct_s: float | None = None
    """Seconds from its submission to its end, queueing included."""
    queueing_s: float | None = None
    rescalings: int = 0


def histories(events: Iterable[Event]) -> list[JobHistory]:
    """Jobs in the order of their arrival."""
    found: dict[int, JobHistory] = {}
    for event in events:
        if event["event"] == "submitted":
            # a daemon that was started again tells a job that still waits once more
            known = JobHistory(str(event["job"]), event["at_s"])
            found.setdefault(event["number"], known)
        elif event["event"] == "workers" and event["number"] in found:
            found[event["number"]].workers.append((event["at_s"], event["workers"]))
        elif event["event"] == "training" and event["number"] in found:
            job = found[event["number"]]
            job.training_s = job.training_s or event["at_s"]
        elif event["event"] == "ended" and event["number"] in found:
            job = found[event["number"]]
            job.phase, job.ended_s = str(event["phase"]), event["at_s"]
            job.jct_s, job.queueing_s = event["jct_s"], event["queueing_s"]
            job.rescalings = event["rescalings"]
    return [found[number] for number in sorted(found)]


def start_up_s(jobs: Iterable[JobHistory]) -> float | None:
    """Mean seconds from a job's first process to its first word that it trains."""
    took = [job.training_s - job.workers[0][0] for job in jobs if job.training_s and job.workers]
    return _mean(took)


def summary(jobs: Iterable[JobHistory]) -> dict[str, Any]:
    """Means over finished jobs, as the simulator's summary has them."""
    all_ = list(jobs)
    done = [job for job in all_ if job.phase == "finished" and job.jct_s is not None]
    first_s = min((job.submitted_s for job in all_), default=0.0)
    return {
        "jct_s": _mean([job.jct_s or 0.0 for job in done]),
        "makespan_s": max((job.ended_s or 0.0 for job in done), default=first_s) - first_s,
        "queueing_s": _mean([job.queueing_s or 0.0 for job in done]),
        "rescalings": _mean([float(job.rescalings) for job in done]),
        "finished": len(done),
        "submitted": len(all_),
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
