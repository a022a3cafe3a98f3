"""Ranks of a gloo process group as real processes, for tests: what each one is to do, and back.

A job is a function (rank, n) -> dict of numpy arrays; `run` starts n processes that
share a group, calls the job in each, and returns the dicts in the order of ranks.
"""

import multiprocessing
import os
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.forkservers import with_a_forkserver_of_its_own

WAIT_S = 500.0
_started = []  # with a forkserver that has loaded what ranks need
TINY_MB = 0.0001  # about 26 numbers: a bucket for nearly every parameter


def run(job, n, directory, *arguments):
    context = multiprocessing.get_context("forkserver")
    if context not in _started:
        with_a_forkserver_of_its_own()
        context.set_forkserver_preload(["tests.ddp_ranks", "torch._dynamo"])
        _started.append(context)
    store = Path(directory) / "store"
    ranks = [
        context.Process(target=_rank, args=(job, rank, n, store, arguments), daemon=True)
        for rank in range(n)
    ]
    for rank in ranks:
        rank.start()
    try:
        for rank in ranks:
            rank.join(WAIT_S)
    finally:
        for rank in ranks:
            if rank.is_alive():
                rank.kill()
                rank.join()
    assert [rank.exitcode for rank in ranks] == [0] * n
    return [dict(np.load(f"{store}-{rank}.npz")) for rank in range(n)]


def _rank(job, rank, n, store, arguments):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=n,
        timeout=timedelta(seconds=WAIT_S),
    )  # fmt: skip
    try:
        np.savez(f"{store}-{rank}.npz", **job(rank, n, *arguments))
    finally:
        dist.destroy_process_group()


def small_model(dtype=torch.float32):
    torch.manual_seed(1)
    parts = [nn.Linear(8, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 3)]
    return nn.Sequential(*parts).to(dtype)


def batch(rank, step, dtype=torch.float32):
    """Each rank's own."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(16, 8, generator=generator).to(dtype)


def flat(module):
    """Its gradient, in the order of parameters; zeros where there is none."""
    parts = [p.grad if p.grad is not None else torch.zeros_like(p) for p in module.parameters()]
    return torch.cat([part.detach().reshape(-1) for part in parts])


def backward(module, x):
    module(x).square().mean().backward()


def gathered(row):
    """(n, d) of everybody's vector."""
    rows = [torch.empty_like(row) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, row.contiguous())
    return torch.stack(rows)


def wrapped(module, **options):
    return DistributedDataParallel(module, **{"bucket_cap_mb": TINY_MB, **options})
