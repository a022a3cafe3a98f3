"""The end of a training: whoever takes part hears of it, also if the word is lost on its way."""

import numpy as np
import pytest
import torch

from garfield.fedgan.device import DeviceData
from garfield.fedgan.nodes.messages import TURN, Announcement
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


def test_a_server_leaves_when_the_end_was_heard_and_not_when_it_was_said(tmp_path):
    rng = np.random.default_rng(1)
    images = torch.from_numpy(rng.integers(0, 256, (16, 1, 28, 28), dtype=np.uint8))
    data = DeviceData(images, torch.arange(16) % 2)
    pair = Pair(tmp_path, data, rounds=1)
    with pair, pair.device(around=LosesTheEnd, give_up_s=20) as device:
        assert device.run() == "all rounds are over"
        assert device._transport.lost == 1
