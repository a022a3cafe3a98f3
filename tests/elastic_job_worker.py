"""What a worker of the elastic tests does: a script's loop, with a record of every sample.

It trains a small network on the digits. Each worker writes a line when it takes a batch and one
when a step was applied, so that a test can tell which samples went into the model that came out.
Faults are told by step: `{"step": 7, "fault": "kill"}` ends the worker in the middle of that step's
exchange of gradients. `python -m tests.elastic_job_worker` is the same as a script, for torchrun.
"""

import json
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from garfield.data import load
from garfield.elastic.job import ElasticOptions, ElasticTraining
from garfield.elastic.job.environment import JobAccess
from garfield.elastic.job.on_sqlite import SqliteCoordination

TINY_MB = 0.0001  # about 26 numbers: a bucket for nearly every parameter, so many collectives


def digits():
    data = load("digits")
    images, labels = data.images("train"), data.labels("train")
    return TensorDataset(torch.from_numpy(images).flatten(1), torch.from_numpy(labels))


def seed_of(member):
    return sum(member.encode())


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 10))


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def work(directory, member, task, access=None):
    """Be a worker until the task is done; `member` names its record."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    logging.basicConfig(filename=directory / f"{member}.log", level=logging.INFO)
    model = network(seed_of(member))  # all must get the first member's
    optimizer = optimizer_of(model)
    optimizer.param_groups[0]["lr"] *= task.get("lr_factor", 1.0)
    options = {"poll_s": 0.02, **task["options"]}
    if "memory_mb" in task:
        options["memory_mb"] = _memory_now_mb() + task["memory_mb"]
    training = ElasticTraining(
        model,
        optimizer,
        digits(),
        ElasticOptions(**options),
        access=access,
        ddp={"bucket_cap_mb": TINY_MB},
    )
    with (directory / f"{member}.jsonl").open("a", buffering=1) as record:

        def write(**what):
            record.write(json.dumps(what) + "\n")

        with training as job:
            _plan_faults(task.get("faults", []), job, model)
            train(job, task, write)
            ending = "left" if job.left else "finished"
            if not job.left and job.rank == 0:
                torch.save(model.state_dict(), directory / "final.pt")
        write(end=ending, step=job.step_number, threads=_threads())


def train(job, task, record):
    last = None  # a step to stop after, alike on all workers
    loss_of = nn.CrossEntropyLoss()
    for _ in job.epochs(task["epochs"]):
        for images, labels in job.batches():
            place = {"step": job.step_number, "generation": job.generation}
            epoch = job.state.cursor.epoch
            record(drawn=job.indices, epoch=epoch, batch=len(labels), **place)
            with job.step():
                held = torch.zeros(len(labels), task.get("held_per_sample", 0))
                job.backward(loss_of(job.model(images), labels))
                del held
            if job.stepped:
                told = {"workers": job.workers, "rank": job.rank, "pid": os.getpid()}
                record(applied=job.step_number, time=time.time(), **told, **place)
            if not ("hurry" in task and task["hurry"].exists()):
                time.sleep(task.get("pace_s", 0.0))
            until = task.get("until")
            if until and last is None and job.generation >= until["generation"]:
                last = job.step_number + until["more"]
            if last is not None and job.step_number >= last:
                return


def _threads():
    """Names of this process's threads, those of torch's groups among them."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            names.append((task / "comm").read_text().strip())
    return names


def _memory_now_mb():
    """What RLIMIT_DATA counts."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmData:")[2].split()[0]) / 1024


def _plan_faults(faults, job, model):
    def strike(gradient):
        for each in faults:
            if each["step"] == job.step_number:
                os.kill(os.getpid(), getattr(signal, each["fault"]))
        return gradient

    # the first layer's gradient comes last: those of the other layers are on their way already
    model[0].weight.register_hook(strike)


def reference(steps, fixed_step, seed):
    """The parameters after so many steps of one process, without any of our machinery."""
    model = network(seed)
    optimizer, data, loss_of = optimizer_of(model), digits(), nn.CrossEntropyLoss()
    epoch = -1
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if not len(order):
            epoch += 1
            drawn = np.random.default_rng((0, epoch)).permutation(len(data))
            order = torch.from_numpy(drawn)
        images, labels = data[order[:fixed_step]]
        order = order[fixed_step:]
        optimizer.zero_grad()
        loss_of(model(images), labels).backward()
        optimizer.step()
    return model.state_dict()


def target(_channel, directory, member, task):
    """Where a process of the tests begins."""
    coordination = SqliteCoordination(Path(directory) / "job.sqlite", create=False)
    work(Path(directory), member, task, JobAccess(coordination, member))


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
