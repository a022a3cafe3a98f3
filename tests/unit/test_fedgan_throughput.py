"""The link that all devices share, and what passes it."""

import numpy as np
import pytest
import torch

from benchmarks.fedgan_link import (
    SharedLink,
    federated_throughput,
    md_gan_throughput,
    packed,
    unpacked,
)
from garfield.core.config import made
from garfield.fedgan.baselines import MdGanTraining
from garfield.fedgan.device import DeviceData, Trainer
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.simulation import simulated
from garfield.transport.contract import Key
from tests.fedgan_small import BATCH, lsgan, shares

LINK_BPS = 1e6


def test_vectors_pass_a_link_one_behind_the_other_and_directions_apart():
    link = SharedLink(8e3, {"generated": 250, "feedback": 500})  # one and two seconds
    down = [link.delay_s(f"device-{n}", "server", Key("generated", 0)) for n in range(3)]
    up = [link.delay_s("server", f"device-{n}", Key("feedback", 0)) for n in range(2)]
    assert down == [1.0, 2.0, 3.0]
    assert up == [2.0, 4.0]
    link.now_s = lambda: 10.0
    assert link.delay_s("device-0", "server", Key("generated", 1)) == 1.0
    assert link.carried == {True: 4000, False: 4000}


@pytest.mark.slow
@pytest.mark.parametrize("speed", [1.0, 1e9])
def test_md_gan_takes_the_time_of_its_bytes_and_of_its_computing(speed):
    training = MdGanTraining(lsgan(), shares(8), batch=BATCH, epochs_per_swap=0)
    found = md_gan_throughput(
        training.server, training.devices, iterations=3, bandwidth_bps=LINK_BPS, speed=speed
    )
    pixels = BATCH * 256 * 4
    assert (found.down_bytes, found.up_bytes) == (3 * 8 * 2 * pixels, 3 * 8 * pixels)
    assert (found.trained, found.iterations, found.devices) == (3 * 8 * BATCH, 3, 8)
    carrying_s = 8 * found.down_bytes / LINK_BPS
    last_feedback_s = 3 * 8 * pixels / LINK_BPS
    if speed == 1e9:  # feedback flows back while others still wait for their images
        assert found.seconds == pytest.approx(carrying_s + last_feedback_s, rel=1e-3)
    else:
        assert found.seconds > carrying_s + last_feedback_s
    assert found.compute_s > 0


def federation():
    settings = made(
        FedganSettings,
        {"devices": 4, "fraction": 0.5, "local_steps": 2, "batch": BATCH, "gan": "unused"},
    )
    devices = [DeviceData(*share) for share in shares(4)]
    return simulated(lsgan(), devices, classes=3, settings=settings), devices


def test_federated_rounds_over_the_link_end_at_the_bits_of_the_simulation():
    plain, _ = federation()
    records = [plain.round() for _ in range(2)]
    over_link, devices = federation()
    found = federated_throughput(
        over_link.server, Trainer(lsgan()), devices, rounds=2, bandwidth_bps=LINK_BPS, speed=1e9
    )
    for name, tensor in plain.server.state.items():
        assert torch.equal(tensor, over_link.server.state[name]), name
    size = 4 * sum(tensor.numel() for tensor in plain.server.state.values())
    assert found.down_bytes == 2 * 2 * size
    assert found.up_bytes == 2 * 2 * (size + 8)
    assert found.trained == sum(record.samples for record in records) == 2 * 2 * 2 * BATCH
    assert (found.declared, found.iterations) == (2 * 2 * 20, 4)
    # a round: two states down, one behind the other; the second one's way back is what is left
    round_s = 8 * (3 * size + 8) / LINK_BPS
    assert found.seconds == pytest.approx(2 * round_s, rel=1e-3)


def test_a_state_is_packed_and_unpacked_whole():
    state, _ = federation()
    again = unpacked(packed(state.server.state), state.server.state)
    for name, tensor in state.server.state.items():
        assert torch.equal(tensor, again[name])
        assert tensor.dtype == again[name].dtype
    assert packed(state.server.state).dtype == np.float32
