"""How soon another server leads, and is followed, once the first has died."""

import threading

import numpy as np
import pytest
import torch

from garfield.core.errors import RunError
from garfield.core.silence import Reason, Silence
from garfield.fedgan.device import DeviceData, Task
from garfield.fedgan.load import Load
from garfield.fedgan.metadata import DeviceMetadata
from garfield.fedgan.nodes import device_node
from garfield.fedgan.nodes.device_node import DeviceNode
from garfield.fedgan.nodes.messages import STATE, TASK, TURN, Announcement
from garfield.fedgan.state import Leader, open_state_database, wait_to_lead
from garfield.transport.contract import Replies
from tests.fedgan_pair import LAYOUT


class Pauses(threading.Event):
    """Notes how long somebody would wait, and is set after so many times."""

    def __init__(self, most):
        super().__init__()
        self.noted, self._most = [], most

    def wait(self, timeout=None):
        self.noted.append(timeout)
        if len(self.noted) >= self._most:
            self.set()
        return self.is_set()


@pytest.mark.parametrize(
    ("left_s", "pause_s"),
    [(2.9, 0.6), (0.61, 0.6), (0.2, 0.2), (0.0, 0.01), (-5.0, 0.01)],
)
def test_a_server_looks_again_when_the_lease_ends_and_often_before(
    tmp_path, monkeypatch, left_s, pause_s
):
    database = open_state_database(tmp_path / "state.sqlite", "run")
    assert database.acquire("server-0", 1000.0)
    monkeypatch.setattr(database, "leader", lambda: Leader("server-0", 1, left_s))
    pauses = Pauses(2)
    assert wait_to_lead(database, "server-1", lease_s=3.0, ended=pauses) is None
    assert pauses.noted == [pause_s] * 2
    database.close()


class DyingServer:
    """A transport on which server-0 announces a turn and dies, and server-1 takes over later."""

    name = "device-0"

    def __init__(self, why, glances):
        self._why, self._glances = why, glances
        self.asked = []

    def serve(self, answerer):
        pass

    def pull(self, peers, key, *, timeout_s, **_):
        self.asked.append((peers, key.kind, timeout_s))
        if key.kind == TASK.name:
            return Replies((), (), silent={"server-0": Silence(self._why, "")})
        if "server-0" in peers and key.round == 1:
            return self._turn("server-0", 1, Announcement(0, frozenset([0])))
        if self._glances:
            self._glances -= 1
            return Replies((), ())
        return self._turn("server-1", 9, Announcement(0, ended="over"))

    def _turn(self, server, number, announced):
        return Replies((server,), (TURN.to_payload(announced.as_json()),), steps={server: number})


class SlowServer(DyingServer):
    """A transport over which states take five seconds, and break off if there is less time.

    Or they stall for ever, and server-1 takes over.
    """

    def __init__(self, why, glances, state=None):
        super().__init__(why, glances)
        self._state = state

    def pull(self, peers, key, *, timeout_s, **how):
        if key.kind == TASK.name:
            task = Task(0, Load(4, 1), 1, 3, False)
            return Replies(("server-0",), (TASK.to_payload(task.as_json()),))
        if key.kind != STATE.name:
            return super().pull(peers, key, timeout_s=timeout_s, **how)
        self.asked.append((peers, key.kind, timeout_s))
        assert len(self.asked) < 30, "it begins again, and again"
        if self._state is None or timeout_s < 5:
            return Replies((), (), silent={"server-0": Silence(self._why, "sent a part")})
        return Replies(("server-0",), (self._state,))


class Trained(Exception):  # noqa: N818
    """The device has all that it needs."""


class Trains:
    def train(self, data, state, task):
        raise Trained


def device_on(transport, trainer=None, servers=("server-0", "server-1")):
    images = torch.zeros(4, 1, 28, 28, dtype=torch.uint8)
    data = DeviceData(images, torch.zeros(4, dtype=torch.long))
    return DeviceNode(
        0, trainer, data, transport, servers, layout=LAYOUT,
        metadata=DeviceMetadata((4, 0)),
    )  # fmt: skip


@pytest.mark.parametrize("why", [Reason.TOO_SLOW, Reason.STALLED])
def test_a_state_that_takes_longer_than_a_look_arrives(why):
    transport = SlowServer(why, glances=1000, state=np.zeros(LAYOUT.length, np.float32))
    with pytest.raises(Trained):
        device_on(transport, Trains()).run()
    looks = [timeout_s for _, kind, timeout_s in transport.asked if kind == STATE.name]
    assert looks == [1.0, 2.0, 4.0, 8.0]


def test_a_server_that_is_frozen_while_it_sends_is_left_for_who_takes_over():
    transport = SlowServer(Reason.STALLED, glances=3)
    assert device_on(transport).run() == "over"
    looks = [timeout_s for _, kind, timeout_s in transport.asked if kind == STATE.name]
    assert looks == [1.0, 2.0, 4.0, 8.0]


class Clock:
    """Shows as much time as pulls have waited."""

    def __init__(self):
        self.now_s = 0.0

    def monotonic(self):
        return self.now_s


class SilentServer(DyingServer):
    """A transport on which server-0 has a turn, or a task, only after a long time."""

    def __init__(self, clock, *, turn_s, task_s, why=Reason.NO_ANSWER):
        super().__init__(why, glances=10**6)
        self._clock, self._turn_s, self._task_s = clock, turn_s, task_s

    def pull(self, peers, key, *, timeout_s, **how):
        if key.kind == TASK.name and self._comes_after(self._task_s, timeout_s):
            task = Task(0, Load(4, 1), 1, 3, False)
            return Replies(("server-0",), (TASK.to_payload(task.as_json()),))
        if key.kind == STATE.name:
            return Replies(("server-0",), (np.zeros(LAYOUT.length, np.float32),))
        first = key.kind == TURN.name and key.round == 1 and "server-0" in peers
        if first and self._comes_after(self._turn_s, timeout_s):
            return self._turn("server-0", 1, Announcement(0, frozenset([0])))
        if key.kind == TURN.name and not first:
            self._clock.now_s += timeout_s
        silent = {peer: Silence(self._why, "") for peer in peers}
        return Replies((), (), silent=silent)

    def _comes_after(self, at_s, timeout_s):
        waited_s = min(timeout_s, max(0.0, at_s - self._clock.now_s))
        self._clock.now_s += waited_s
        return self._clock.now_s >= at_s


@pytest.mark.parametrize("servers", [["server-0"], ["server-0", "server-1"]])
@pytest.mark.parametrize(("turn_s", "task_s"), [(3000.0, 3000.0), (0.0, 3000.0), (500.0, 900.0)])
def test_a_server_that_is_there_is_waited_for_however_long(monkeypatch, servers, turn_s, task_s):
    """Its user may have said --round-timeout-s 3600."""
    clock = Clock()
    monkeypatch.setattr(device_node, "time", clock)
    with pytest.raises(Trained):
        device_on(SilentServer(clock, turn_s=turn_s, task_s=task_s), Trains(), servers).run()


@pytest.mark.parametrize("servers", [["server-0"], ["server-0", "server-1"]])
@pytest.mark.parametrize(("turn_s", "task_s"), [(3000.0, 3000.0), (0.0, 3000.0)])
def test_servers_that_cannot_be_reached_are_given_up(monkeypatch, servers, turn_s, task_s):
    clock = Clock()
    monkeypatch.setattr(device_node, "time", clock)
    transport = SilentServer(clock, turn_s=turn_s, task_s=task_s, why=Reason.UNREACHABLE)
    with pytest.raises(RunError, match=r"reached none of .* for 600 s, and gives up"):
        device_on(transport, Trains(), servers).run()
    assert clock.now_s <= 1250


@pytest.mark.parametrize(
    ("why", "first_s", "others_s", "then_s"),
    [
        (Reason.UNREACHABLE, 1.0, 1.0, 0.1),
        (Reason.DISCONNECTED, 1.0, 1.0, 0.1),
        (Reason.NO_ANSWER, 1.0, 0.1, 1.0),
    ],
)
def test_a_device_listens_to_the_others_while_its_server_cannot_be_reached(
    why, first_s, others_s, then_s
):
    transport = DyingServer(why, glances=2)
    assert device_on(transport).run() == "over"
    dead, other = ["server-0"], ["server-1"]
    assert transport.asked[1:6] == [
        (dead, TASK.name, first_s), (other, TURN.name, others_s),
        (dead, TASK.name, then_s), (other, TURN.name, others_s),
        (dead, TASK.name, then_s),
    ]  # fmt: skip
