"""The core's own server and workers, where nobody can call the workers: they dial in."""

import socket
import threading
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from garfield import GARS, GarfieldError, Server, Worker, connect
from garfield.data import load
from garfield.transport.certs import make
from garfield.transport.identity import DIALS_IN

pytestmark = pytest.mark.slow
WORKERS = ["worker-0", "worker-1", "worker-2"]
STEPS = 5


def model():
    torch.manual_seed(1)
    return nn.Linear(64, 10)


def batches(part):
    data = load("digits")
    x = torch.from_numpy(data.images("train")[part::3]).flatten(1)
    return DataLoader(TensorDataset(x, torch.from_numpy(data.labels("train")[part::3])), 32)


def work(transport, part):
    with suppress(GarfieldError):  # its transport is closed when the training is over
        Worker(model(), batches(part), transport=transport, servers=["server-0"]).serve()


def trained(nodes, certificates):
    """The parameters after a few steps."""
    transports = {name: connect(name, nodes, certificates=certificates) for name in nodes}
    threads = [
        threading.Thread(target=work, args=[transports[name], part])
        for part, name in enumerate(WORKERS)
    ]
    try:
        module = model()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        ps = Server(module, optimizer, transport=transports["server-0"], workers=WORKERS, f_w=0)
        for thread in threads:
            thread.start()
        for step in range(STEPS):
            gradients = ps.get_gradients(step, len(WORKERS))
            ps.update_model(GARS["average"](gradients=gradients, f=0))
        return np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
    finally:
        for transport in transports.values():
            transport.close()
        for thread in threads:
            thread.join()


def free_addresses(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def test_workers_that_dial_in_train_as_those_that_are_called(tmp_path):
    names = ["server-0", *WORKERS]
    make(tmp_path / "certs", {name: name.partition("-")[0] for name in names})
    called = dict(zip(names, free_addresses(len(names)), strict=True))
    dialling = {"server-0": free_addresses(1)[0], **dict.fromkeys(WORKERS, DIALS_IN)}
    expected = trained(called, tmp_path / "certs")
    np.testing.assert_array_equal(trained(dialling, tmp_path / "certs"), expected)
    start = np.concatenate([p.detach().numpy().ravel() for p in model().parameters()])
    assert np.abs(expected - start).max() > 1e-3
