"""Rounds behind masks, as servers and devices hold them over a transport."""

import time

from garfield.core.config import made
from garfield.core.errors import RunError
from garfield.fedgan.metadata import DeviceMetadata, MetadataTable
from garfield.fedgan.nodes.committed import new_server
from garfield.fedgan.nodes.messages import About
from garfield.fedgan.nodes.secure_round import SecureServerRound
from garfield.fedgan.nodes.server_node import ServerNode
from garfield.fedgan.nodes.state_vector import StateLayout
from garfield.fedgan.settings import FedganSettings
from garfield.transport.simulated import Simulation
from tests.fedgan_small import IMAGE, lsgan

DEVICES = tuple(f"device-{k}" for k in range(4))
ABOUT = About("lsgan(width=0.0625)", IMAGE, ("a", "b"), False, "reset", secure_aggregation=True)
GIVEN = {"devices": 4, "fraction": 1.0, "rounds": 1, "local_steps": 1, "batch": 4}
SETTINGS = made(FedganSettings, GIVEN)


def new():
    table = MetadataTable.of([DeviceMetadata((4, 4))] * len(DEVICES), DEVICES)
    return new_server(lsgan(), ABOUT, SETTINGS, table)


# -- rounds that are given up ---------------------------------------------------------------------


def abandoned(monkeypatch, **silent):
    """What a round leaves behind that is given up for a reason of its own."""

    def fail(self, *_):
        self.silent.update(silent)
        raise RunError("The own mask of device-2 cannot be put together.")

    monkeypatch.setattr(SecureServerRound, "agree", fail)
    server = new()
    transport = Simulation().transport("server-0")
    node = ServerNode("server-0", lsgan(), ABOUT, SETTINGS, transport, DEVICES, None)
    layout = StateLayout.of(server.state)
    record, _ = node._summed(server, server.plan(), layout, 1, time.monotonic())
    return record


def test_a_round_that_is_given_up_is_no_devices_fault(monkeypatch):
    record = abandoned(monkeypatch)
    assert record.took_part == ()
    assert set(record.refused) == set(range(4))
    assert set(record.refused.values()) == {"The own mask of device-2 cannot be put together."}


def test_who_was_left_out_before_a_round_was_given_up_is_told_by_name(monkeypatch):
    record = abandoned(monkeypatch, **{"device-3": "device-3 no answer in 10 s"})
    assert record.refused[3] == "device-3 no answer in 10 s"
    assert record.refused[0].startswith("The own mask of device-2")
