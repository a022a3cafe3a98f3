"""What a user wrote into an ElasticJob, as a job request; what cannot hold is refused here.

The schema has checked types and bounds of single fields. Rules across fields are those of
`JobRequest`, told in the words of an ElasticJob.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from garfield.core.errors import ConfigError
from garfield.elastic.kubernetes.client import Object
from garfield.elastic.policy.jobs import JobRequest

_START = 2
# as messages of JobRequest name its settings: as an ElasticJob does
_SPELLINGS = {
    "max-global-batch": "batch.maxGlobal",
    "fixed-global-batch": "batch.fixedGlobal",
    "max-batch": "batch.max",
    "min-workers": "workers.min",
    "powers-of-two": "powersOfTwo",
}


def request_of(spec: Mapping[str, Any], *, has_started: bool = False) -> JobRequest:
    """The request of a spec; ConfigError says which of its fields cannot hold together.

    Once a job has started, its maximum may be lowered below that start: `kubectl scale` does so.
    """
    workers, batch = spec.get("workers") or {}, spec.get("batch") or {}
    least, most = workers.get("min", 1), workers.get("max", 16)
    start = workers.get("start", min(max(_START, least), most))
    if has_started:
        start = min(max(start, least), most)
    try:
        return JobRequest(
            min_workers=least,
            start_workers=start,
            max_workers=most,
            batch=batch.get("size", 64),
            max_batch=batch.get("max"),
            max_global_batch=batch.get("maxGlobal"),
            scale_batch=batch.get("scale", True),
            fixed_global_batch=batch.get("fixedGlobal"),
            powers_of_two=spec.get("powersOfTwo", False),
            learning_rate=spec.get("learningRate", "linear"),
            team=spec.get("team", ""),
        )
    except ConfigError as problem:
        text = str(problem)
        for name, field in _SPELLINGS.items():
            text = text.replace(name, f"spec.{field}")
        raise ConfigError(text) from None


def full_name(job: Object) -> str:
    """The name under which policies know a job: namespaces may have jobs of the same name."""
    return f"{job['metadata']['namespace']}/{job['metadata']['name']}"
