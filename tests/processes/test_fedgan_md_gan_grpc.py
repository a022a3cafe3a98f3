"""MD-GAN over real gRPC learns what it learns in one process, bit for bit."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from garfield.fedgan.baselines import MdGanTraining
from garfield.fedgan.baselines.md_gan_nodes import MdGanDeviceNode, MdGanServerNode
from garfield.transport.connect import grpc_transport
from garfield.transport.identity import PeerAddress
from tests.fedgan_small import BATCH, flat, lsgan, shares

DEVICES, ITERATIONS = 3, 4


def test_server_and_devices_reach_each_other_by_grpc():
    def made():
        return MdGanTraining(lsgan(), shares(DEVICES, each=12), batch=BATCH, seed=3)

    here, there, book, one_at_a_time = made(), made(), {}, threading.Lock()
    here.train(ITERATIONS)

    def compute(work):  # torch has one random state, and these nodes are one process
        with one_at_a_time:
            return work()

    names = [f"device-{number}" for number in range(DEVICES)]
    transports = {
        name: grpc_transport(name, book, listen="127.0.0.1:0") for name in ("server", *names)
    }
    try:
        server = MdGanServerNode(there.server, transports["server"], names, compute=compute)
        nodes = [
            MdGanDeviceNode(
                device, transports[name], "server",
                swap_every=there.server.swap_every, compute=compute,
            )
            for name, device in zip(names, there.devices, strict=True)
        ]  # fmt: skip
        for name, transport in transports.items():
            book[name] = PeerAddress(transport.address, "worker")
        with ThreadPoolExecutor(DEVICES + 1) as pool:
            for running in [pool.submit(node.run, ITERATIONS) for node in (server, *nodes)]:
                running.result(timeout=120)
        received = [transports[name].bytes_received for name in names]
        gathered = transports["server"].bytes_received
    finally:
        for transport in transports.values():
            transport.close()
    np.testing.assert_array_equal(flat(there.server.generator), flat(here.server.generator))
    for one, other in zip(there.devices, here.devices, strict=True):
        np.testing.assert_array_equal(one.give_discriminator(), other.give_discriminator())
    assert received == [traffic.down for traffic in here.traffic]
    assert gathered == sum(traffic.up for traffic in here.traffic)
