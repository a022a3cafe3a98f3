"""A process group of torch leaves no threads behind, whatever was imported meanwhile."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

_OWN = """
from garfield.transport.process_groups import init_process_group

def train():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.ones(1, 2)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()  # imports torch's compiler
"""

_DDP = """
from torch.nn.parallel import DistributedDataParallel

from garfield import torch_ddp

init_process_group = dist.init_process_group

def train():
    ddp = DistributedDataParallel(torch.nn.Linear(2, 2))
    torch_ddp.robust(ddp, gar="bucketing(s=1)+average", f=0)  # draws: one collective more
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        ddp(torch.ones(1, 2)).sum().backward()
        optimizer.step()
"""

_ENDS = """
init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
train()
dist.destroy_process_group()
for task in os.listdir("/proc/self/task"):
    print(open(f"/proc/self/task/{task}/comm").read().strip())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("training", [_OWN, _DDP], ids=["own", "ddp"])
def test_a_group_that_is_destroyed_leaves_no_thread_that_could_abort_the_process(training):
    program = f"import os\nimport torch\nimport torch.distributed as dist\n{training}{_ENDS}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "gloo" not in done.stdout, done.stdout
