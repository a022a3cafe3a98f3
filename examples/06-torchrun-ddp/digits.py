"""DistributedDataParallel with one line more: four ranks, the last of which lies.

Run it with: torchrun --standalone --nproc-per-node 4 examples/06-torchrun-ddp/digits.py
With --plain it averages, as DistributedDataParallel does by itself, and learns nothing.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from garfield import torch_ddp
from garfield.data import load


def tensors(split):
    data = load("digits")
    return torch.from_numpy(data.images(split)), torch.from_numpy(data.labels(split))


def train():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    if rank == ranks - 1:
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: -100 * gradient)  # the lie

    ddp = DistributedDataParallel(model)
    if "--plain" not in sys.argv:
        torch_ddp.robust(ddp, gar="mda", f=1)  # the one line

    data = TensorDataset(*tensors("train"))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(ddp(x), y).backward()
            optimizer.step()
    return model


def main():
    dist.init_process_group("gloo")
    model = train()
    if dist.get_rank() == 0:
        x, y = tensors("test")
        print(f"final accuracy {(model(x).argmax(1) == y).float().mean():.3f}")
    dist.destroy_process_group()  # last: whoever still holds the DDP object holds the group, too


if __name__ == "__main__":
    main()
