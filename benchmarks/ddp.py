"""The rival: PyTorch's DistributedDataParallel over gloo, as its manual says, one process a worker.

Same model, batches, threads and optimizer as our nodes; the step time is that of
rank 0, from one optimizer step to the next.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

START_S, STEP_S = 180.0, 60.0


@dataclass(frozen=True)
class Job:
    """What every rank trains."""

    model: str
    data: str
    data_dir: str | None
    workers: int
    batch: int
    steps: int
    warm_up: int


def step_times(job: Job) -> list[float]:
    """Seconds of each step after the warm-up."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "benchmarks.ddp"])
    ours, theirs = context.Pipe()
    with TemporaryDirectory() as directory:
        ranks = [
            context.Process(target=_rank, args=(job, rank, directory, theirs), daemon=True)
            for rank in range(job.workers)
        ]
        try:
            for process in ranks:
                process.start()
            if not ours.poll(START_S + STEP_S * (job.steps + job.warm_up)):
                raise RuntimeError("DDP did not finish.")
            times: list[float] = ours.recv()
        finally:
            for process in ranks:
                process.terminate()
                process.join()
    return times


def _rank(job: Job, rank: int, directory: str, pipe: Connection) -> None:
    import torch
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    from garfield.models import build

    torch.set_num_threads(1)
    # gradients of 1×1 kernels with channels last: another name for the same order of numbers
    warnings.filterwarnings("ignore", message="Grad strides do not match")
    store = distributed.FileStore(str(Path(directory) / "store"), job.workers)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=job.workers)
    batches = _batches(job, rank)
    ddp = DistributedDataParallel(build(job.model, classes=10, seed=0))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9)
    loss_of, times = torch.nn.CrossEntropyLoss(), []
    for step in range(job.warm_up + job.steps):
        began = time.perf_counter()
        images, labels = (torch.from_numpy(part) for part in batches.batch(step))
        optimizer.zero_grad()
        loss_of(ddp(images), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - began)
    distributed.barrier()
    if rank == 0:
        pipe.send(times[job.warm_up :])
    signal.pause()  # whoever leaves first breaks the others' connections, noisily


def _batches(job: Job, rank: int) -> Any:
    from garfield.data import load
    from garfield.data.batches import Batches

    data = load(job.data, job.data_dir)
    share = range(rank, len(data.labels("train")), job.workers)
    return Batches.of(data, list(share), batch=job.batch, seed=(0, rank))
