"""The end of a training: whoever takes part hears of it, also if the word is lost on its way."""

import numpy as np
import pytest
import torch

from garfield.core.errors import ConfigError, InputError
from garfield.fedgan.device import DeviceData
from garfield.fedgan.metadata import DeviceMetadata
from garfield.fedgan.nodes.messages import TURN, Announcement
from garfield.fedgan.nodes.server_outbox import ServerOutbox
from garfield.transport.contract import Replies, WrappedTransport
from tests.fedgan_pair import Pair

pytestmark = pytest.mark.slow


class LosesTheEnd(WrappedTransport):
    """A transport on which the first announcement that all is over gets lost."""

    lost = 0

    def pull(self, peers, key, **how):
        replies = self.inner.pull(peers, key, **how)
        if key.kind != TURN.name or self.lost or not replies.rows:
            return replies
        if Announcement.read(TURN.read(replies.rows[0])).ended is None:
            return replies
        self.lost += 1
        return Replies((), ())


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    images = torch.from_numpy(rng.integers(0, 256, (16, 1, 28, 28), dtype=np.uint8))
    return DeviceData(images, torch.arange(16) % 2)


def test_a_server_leaves_when_the_end_was_heard_and_not_when_it_was_said(tmp_path, data):
    pair = Pair(tmp_path, data)
    with pair, pair.device(around=LosesTheEnd, give_up_s=20) as device:
        assert device.run() == "all rounds are over"
        assert device._transport.lost == 1
    assert pair.failure is None


def test_devices_hear_that_a_training_cannot_begin(tmp_path, data):
    pair = Pair(tmp_path, data)
    with pair, pair.device(metadata=DeviceMetadata((1, 2, 3)), give_up_s=60) as device:
        assert device.run().startswith("it cannot begin: device-0 ")
    assert isinstance(pair.failure, InputError)


def test_devices_hear_that_nobody_has_a_class(tmp_path, data):
    pair = Pair(tmp_path, data)
    with pair, pair.device(metadata=DeviceMetadata((16, 0)), give_up_s=20) as device:
        assert device.run() == (
            "it cannot begin: No device has a sample of: two. Nobody can learn it. Take more "
            "devices, more classes per device or another seed, or allow it: --missing-classes allow"
        )
    assert isinstance(pair.failure, ConfigError)


@pytest.mark.heavy
def test_those_that_are_there_hear_that_others_never_came(tmp_path, data):
    """And the server does not stay for who never came to hear of it."""
    pair = Pair(tmp_path, data, absent=["device-1"], join_s=10)
    with pair, pair.device(give_up_s=60) as device:
        assert device.run().startswith("it cannot begin: 1 of 2 devices have not joined in 10 s")
    assert set(pair.failure.silent) == {"device-1"}


@pytest.mark.timeout(30)
def test_a_server_whom_nobody_joined_waits_for_nobody_to_hear_of_it():
    outbox = ServerOutbox(["device-0"])
    outbox.waits_for = frozenset()
    outbox.wait_until_told(3600.0)
