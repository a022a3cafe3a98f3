"""MD-GAN over a transport learns what it learns in one process, byte for byte."""

import numpy as np
import pytest

from garfield.core.errors import QuorumError
from garfield.fedgan.baselines import MdGanTraining
from garfield.fedgan.baselines.md_gan_nodes import MdGanDeviceNode, MdGanServerNode
from garfield.transport.simulated import Simulation
from tests.fedgan_small import BATCH, flat, lsgan, shares
from tests.marks import heavy_but

ITERATIONS = 5


def joined(training, simulation, *, silent=(), compute=None):
    """Nodes of this training's server and devices on a simulated network."""
    names = [f"device-{n}" for n in range(len(training.devices))]
    told = {} if compute is None else {"compute": compute}
    server = MdGanServerNode(training.server, simulation.transport("server"), names, **told)
    simulation.spawn(lambda: server.run(ITERATIONS))
    nodes = [
        MdGanDeviceNode(
            device, simulation.transport(name), "server",
            swap_every=training.server.swap_every, **told,
        )
        for name, device in zip(names, training.devices, strict=True)
        if name not in silent
    ]  # fmt: skip
    for node in nodes:
        simulation.spawn(lambda node=node: node.run(ITERATIONS))
    return server, nodes


DEVICES = [(1, None), (3, None), (8, 3)]  # how many, and classes of a conditional GAN


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "classes"), heavy_but(DEVICES, (3, None)))
def test_the_same_bits_and_the_same_bytes_come_out_over_a_transport(devices, classes):
    def made():
        return MdGanTraining(
            lsgan(classes), shares(devices, each=12), batch=BATCH, epochs_per_swap=1.0, seed=9
        )

    here, there, simulation = made(), made(), Simulation()
    here.train(ITERATIONS)
    server, nodes = joined(there, simulation)
    simulation.run()
    np.testing.assert_array_equal(flat(there.server.generator), flat(here.server.generator))
    for one, other in zip(there.devices, here.devices, strict=True):
        np.testing.assert_array_equal(one.give_discriminator(), other.give_discriminator())
    for node, traffic in zip(nodes, here.traffic, strict=True):
        assert node.transport.bytes_received == traffic.down
        assert node.transport.bytes_sent == traffic.up
    assert server.transport.bytes_sent == sum(traffic.down for traffic in here.traffic)
    assert here.server.swap_every == (2 if devices > 1 else 0)


def test_time_is_what_computing_takes():
    simulation = Simulation()

    def compute(work):
        made = work()
        simulation.sleep(1.0)
        return made

    joined(MdGanTraining(lsgan(), shares(3), batch=BATCH), simulation, compute=compute)
    simulation.run()
    # drawing, all devices at once, updating
    assert simulation.now_s == pytest.approx(3.0 * ITERATIONS)


def test_a_silent_device_is_named():
    simulation = Simulation()
    joined(MdGanTraining(lsgan(), shares(3), batch=BATCH), simulation, silent=("device-1",))
    with pytest.raises(
        QuorumError, match=r"server got 2 of 3 feedback vectors for iteration 0 .* device-1"
    ):
        simulation.run()
