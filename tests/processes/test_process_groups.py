"""A process group of torch leaves no threads behind, whatever was imported meanwhile."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

_PROGRAM = """
import os

import torch
import torch.distributed as dist

from garfield.transport.process_groups import init_process_group

init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(1, 2)).sum().backward()
for parameter in model.parameters():
    dist.all_reduce(parameter.grad)
optimizer.step()  # imports torch's compiler
dist.destroy_process_group()
for task in os.listdir("/proc/self/task"):
    print(open(f"/proc/self/task/{task}/comm").read().strip())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_group_that_is_destroyed_leaves_no_thread_that_could_abort_the_process():
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    assert "gloo" not in done.stdout, done.stdout
