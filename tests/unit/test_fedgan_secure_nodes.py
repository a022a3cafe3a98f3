"""Rounds behind masks, as servers and devices hold them over a transport."""

import time

import pytest

from garfield.core.config import made
from garfield.core.errors import ConfigError, InputError, RunError
from garfield.fedgan.device import DeviceData, Trainer
from garfield.fedgan.metadata import DeviceMetadata, MetadataTable
from garfield.fedgan.nodes import apart
from garfield.fedgan.nodes.committed import new_server
from garfield.fedgan.nodes.device_node import DeviceNode
from garfield.fedgan.nodes.device_terms import DeviceTerms
from garfield.fedgan.nodes.messages import About
from garfield.fedgan.nodes.secure_round import (
    LEAST_WEIGHT,
    SecureDeviceRound,
    SecureServerRound,
    threshold_of,
    weights_of,
)
from garfield.fedgan.nodes.server_node import ServerLimits, ServerNode
from garfield.fedgan.nodes.state_vector import StateLayout
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.state import open_state_database
from garfield.nodes.outbox import Outbox
from garfield.transport.simulated import Simulation
from tests.fedgan_small import IMAGE, images, lsgan

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


# -- weights --------------------------------------------------------------------------------------


def test_a_device_that_would_count_for_next_to_nothing_counts_a_hundredth(tmp_path):
    """And takes part: devices refuse weights below."""
    simulation, database = Simulation(), open_state_database(tmp_path / "state.sqlite", "run")
    gan, rows = lsgan(), DeviceData(*images(8, classes=2))
    layout = StateLayout.of(new().state)
    for number, name in enumerate(DEVICES):
        device = DeviceNode(
            number, Trainer(gan), rows, simulation.transport(name), ["server-0"], layout=layout,
            metadata=DeviceMetadata((4_000_000, 4_000_000) if number == 2 else (4, 4)), secure=True,
        )  # fmt: skip
        simulation.spawn(device.run)
    node = ServerNode(
        "server-0", gan, ABOUT, made(FedganSettings, GIVEN | {"weighting": "samples"}),
        simulation.transport("server-0"), DEVICES, database, ServerLimits(linger_s=0.0),
    )  # fmt: skip
    simulation.spawn(node.run)
    simulation.run()
    (held,) = database.history()
    assert sorted(held.choices["took_part"]) == [0, 1, 2, 3]
    counted = dict(zip(held.choices["took_part"], held.choices["weights"], strict=True))
    least = LEAST_WEIGHT / (1 + 3 * LEAST_WEIGHT)
    assert [counted[k] for k in (0, 1, 3)] == pytest.approx([least] * 3)
    assert sum(counted.values()) == pytest.approx(1)
    database.close()


def test_shares_are_weights_beside_the_largest():
    assert weights_of({"a": 0.4, "b": 0.2, "c": 1e-12}) == {"a": 1.0, "b": 0.5, "c": LEAST_WEIGHT}


@pytest.mark.parametrize("weight", [1e-300, 0.0, LEAST_WEIGHT * 0.99, 1.01, float("nan"), 1, "1"])
def test_a_device_lets_no_weights_single_anybody_out(weight):
    """By weights of 1 and 1e-300 the sum would be the one vector."""
    told = {"threshold": threshold_of(3), "devices": 3, "weight": weight}
    outbox = Outbox()
    device = SecureDeviceRound("device-0", 0, outbox, 1, lambda key: told)
    with pytest.raises(InputError, match=r"A weight is within 0\.01\.\.1, got"):
        device.agree()
    assert not outbox._vectors


def test_a_device_takes_part_behind_masks_alone_if_its_user_says_so(monkeypatch):
    plain = About("lsgan(width=0.0625)", IMAGE, ("a", "b"), False, "reset")
    monkeypatch.setattr(apart, "_heard", lambda *_: plain)
    with pytest.raises(ConfigError, match="the server sees the networks of each device"):
        apart.join_as_device(
            "device-0", 0, ["127.0.0.1:1"], lambda about: pytest.fail("it goes on"),
            DeviceTerms(secure_aggregation=True), certificates=None,
        )  # fmt: skip
