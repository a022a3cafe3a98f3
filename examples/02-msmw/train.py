"""Listing 3.2: four servers and nine workers; one server and one worker lie.

Nobody is trusted: servers wait for the fastest nw - fw gradients, take their
step, and join their models. Run it with: python examples/02-msmw/train.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from garfield import (
    ATTACKS,
    ByzantineServer,
    ByzantineWorker,
    GARs,
    Plan,
    Server,
    Worker,
    run_locally,
)
from garfield.data import load

nw, fw, nps, fps = 9, 1, 4, 1
workers = [f"worker-{i}" for i in range(nw)]
servers = [f"server-{i}" for i in range(nps)]
liars = {workers[-1]: Plan(attack=ATTACKS["reverse"]), servers[-1]: Plan(attack=ATTACKS["random"])}
num_iter, comp_acc_freq = 60, 20


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def batches(split, part=slice(None)):
    data = load("digits")
    x = torch.from_numpy(data.images(split)[part])
    return DataLoader(TensorDataset(x, torch.from_numpy(data.labels(split)[part])), 32, True)


def main(name, transport):
    lies = {"plan": liars[name]} if name in liars else {}
    if name in workers:
        part = slice(workers.index(name), None, nw)
        kind = ByzantineWorker if lies else Worker
        worker = kind(
            model(), batches("train", part), transport=transport, servers=servers, f_ps=fps,
            q_ps=nps - fps, model_gar=GARs["median"], **lies,
        )  # fmt: skip
        worker.serve()
        return

    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    kind = ByzantineServer if lies else Server
    ps = kind(
        module, optimizer, transport=transport, workers=workers, servers=servers,
        f_w=fw, f_ps=fps, test=batches("test"), **lies,
    )  # fmt: skip
    for i in ps.steps(num_iter):  # those that a server which lags behind skips left out
        gradients = ps.get_gradients(i, nw - fw)
        aggr_grad = GARs["multi-krum"](gradients=gradients, f=fw)
        ps.update_model(aggr_grad)
        models = ps.get_models(nps - fps)
        aggr_models = GARs["median"](gradients=models, f=fps)
        ps.write_model(aggr_models)
        if i % comp_acc_freq == 0 and name == servers[0]:
            acc = ps.compute_accuracy()
            print(f"step {i}: accuracy {acc:.3f}")
    if name == servers[0]:
        print(f"final accuracy {ps.compute_accuracy():.3f}")


if __name__ == "__main__":
    run_locally(main, [*servers, *workers])
