"""A device fetches states over a link on which one takes longer than it ever looks at first."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from garfield.fedgan.device import DeviceData, Task, Update
from garfield.fedgan.load import Load
from garfield.fedgan.metadata import DeviceMetadata
from garfield.fedgan.nodes.device_node import DeviceNode
from garfield.fedgan.nodes.messages import STATE, TASK, TURN, Announcement
from garfield.fedgan.nodes.node_process import Wiring
from garfield.nodes.outbox import Outbox
from garfield.transport.contract import Key, Ready
from tests.fedgan_pair import LAYOUT

pytestmark = pytest.mark.slow

SERVERS, DEVICE = ("server-0", "server-1"), "device-0"
TAKES_S = 3.0
MOST = 6
"""States that are asked for until this is given up."""


class SlowOutbox(Outbox):
    """Announces one turn, and its end when the state was asked for too often."""

    def __init__(self):
        super().__init__()
        self.states = 0

    def answer(self, asker, key):
        answer = super().answer(asker, key)
        if key.kind != STATE.name or not isinstance(answer, Ready):
            return answer
        self.states += 1
        if self.states > MOST:
            self.say(2, Announcement(0, ended="it never arrived"))
        return replace(answer, pace_bps=8 * 4 * LAYOUT.length / TAKES_S)

    def say(self, turn, announced):
        self.publish(Key(TURN.name, turn), TURN.to_payload(announced.as_json()))


class Ends:
    """Does nothing in its one round."""

    def __init__(self, outbox):
        self._outbox = outbox

    def train(self, data, state, task):
        self._outbox.say(2, Announcement(0, ended="enough"))
        return Update(state, 0.0, 0.0)


def test_a_state_arrives_over_a_slow_link_though_another_server_is_looked_at():
    wiring = Wiring(SERVERS, (DEVICE,), None)
    serving = {name: wiring.transport(name, {}, listen="127.0.0.1:0") for name in SERVERS}
    outbox = SlowOutbox()
    try:
        for name, transport in serving.items():
            transport.serve(outbox if name == "server-0" else Outbox())
        outbox.publish(Key(STATE.name, 1), np.zeros(LAYOUT.length, np.float32))
        task = Task(0, Load(4, 1), 1, 3, False)
        outbox.publish(Key(TASK.name, 1, 0), TASK.to_payload(task.as_json()))
        outbox.say(1, Announcement(0, frozenset([0])))
        addresses = {name: transport.address for name, transport in serving.items()}
        serving[DEVICE] = wiring.transport(DEVICE, addresses)
        images = torch.zeros(4, 1, 28, 28, dtype=torch.uint8)
        device = DeviceNode(
            0, Ends(outbox), DeviceData(images, torch.arange(4) % 2), serving[DEVICE], SERVERS,
            layout=LAYOUT, metadata=DeviceMetadata((2, 2)),
        )  # fmt: skip
        assert device.run() == "enough"
        assert device.turns_trained == 1
    finally:
        for transport in reversed(serving.values()):
            transport.close()
