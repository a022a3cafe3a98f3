"""What a PyTorch training script imports to become elastic.

    with ElasticTraining(model, optimizer, data) as job:
        for _ in job.epochs(10):
            for x, y in job.batches():
                with job.step():
                    job.backward(loss_of(job.model(x), y))

`training` is that context, and what happens on the way of a step. Below it:

    participation    a worker's part in a job: which group it is in, and how it comes to the next
    membership       how it meets the others of a generation (`torchrun`: where torchrun does that)
    group, state     a process group; what a newcomer is given in it
    agreement        how workers decide, between two steps, to change together
    watcher          reads beside the training who should be in the job
    coordination     where that is agreed on; `on_sqlite` keeps it for one machine
    on_kubernetes    the same for pods, in their job's status (`in_pod`: how a pod knows its job)
    cursor           which sample is whose: pure

A controller imports `coordination`, `on_sqlite` or `on_kubernetes`, and `environment`, which need
no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from garfield.elastic.job.options import ElasticOptions
    from garfield.elastic.job.training import ElasticTraining

_HOMES = {
    "ElasticOptions": "garfield.elastic.job.options",
    "ElasticTraining": "garfield.elastic.job.training",
}

__all__ = ["ElasticOptions", "ElasticTraining"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
