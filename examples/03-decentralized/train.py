"""Listing 3.3: seven nodes, no server, data that differ; one node lies.

Every node is server and worker at once. Run it with:
python examples/03-decentralized/train.py
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from garfield import ATTACKS, ByzantineServer, GARs, Plan, Server, Worker, contract, run_locally
from garfield.data import load
from garfield.data.partitions import parse

n, f = 7, 1
nodes = [f"node-{i}" for i in range(n)]
liar = Plan(attack=ATTACKS["reverse"])
num_iter, comp_acc_freq, non_iid = 60, 20, True
gar = GARs["multi-krum"]


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def batches(split, part=slice(None)):
    data = load("digits")
    x = torch.from_numpy(data.images(split)[part])
    return DataLoader(TensorDataset(x, torch.from_numpy(data.labels(split)[part])), 32, True)


def main(name, transport):
    shares = parse("dirichlet(alpha=5.0)")(
        load("digits").labels("train"), workers=n, rng=np.random.default_rng(0)
    )
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    lies = {"plan": liar} if name == nodes[-1] else {}
    ps = (ByzantineServer if lies else Server)(
        module, optimizer, transport=transport, workers=nodes, servers=nodes,
        f_w=f, f_ps=f, test=batches("test"), **lies,
    )  # fmt: skip
    wrk = Worker(
        ps.model, batches("train", shares[nodes.index(name)]), transport=transport,
        servers=[name], outbox=ps.outbox, serves=False,
    )  # fmt: skip
    ps.worker = wrk
    for i in ps.steps(num_iter):  # those that a server which lags behind skips left out
        gradients = ps.get_gradients(i, n)
        aggr_grad = gar(gradients=gradients, f=f)
        if non_iid:
            aggr_grad = contract(ps, aggr_grad, gar, rounds=1, q=n, f=f)
        ps.update_model(aggr_grad)
        models = ps.get_models(n)
        aggr_models = gar(gradients=models, f=f)
        ps.write_model(aggr_models)
        if i % comp_acc_freq == 0 and name == nodes[0]:
            acc = ps.compute_accuracy()
            print(f"step {i}: accuracy {acc:.3f}")
    if name == nodes[0]:
        print(f"final accuracy {ps.compute_accuracy():.3f}")


if __name__ == "__main__":
    run_locally(main, nodes)
