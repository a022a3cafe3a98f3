"""A round that falls short is tried again as long as what went wrong may pass."""

import numpy as np
import pytest

from garfield.core.errors import QuorumError
from garfield.core.silence import Reason, Silence
from garfield.nodes.node import Node, Waits
from garfield.transport.contract import Key, Replies

ROW = np.ones(3, np.float32)


class FailsOnce:
    """A transport whose first pull ends a little before its time: a link that takes some itself."""

    name, bytes_sent, bytes_received = "server-0", 0, 0

    def __init__(self, reason):
        self.pulls, self.reason = 0, reason

    def serve(self, answerer):
        pass

    def shared_copy(self, vector):
        return None

    def pull(self, peers, key, *, length, until, timeout_s):
        self.pulls += 1
        if self.pulls == 1:
            return Replies((), (), {"worker-0": Silence(self.reason, "in words")})
        return Replies(("worker-0",), (ROW,))


def gather(reason):
    node = Node(FailsOnce(reason), waits=Waits(0.6, 100.0), clock=lambda: 0.0)
    return node.gather(["worker-0"], Key("gradient", 0), length=3, quorum=1, f=0)


@pytest.mark.parametrize("reason", [Reason.NO_ANSWER, Reason.TOO_SLOW, Reason.STALLED])
def test_one_who_was_late_is_asked_again(reason):
    assert gather(reason).rows[0] is ROW


@pytest.mark.parametrize("reason", [Reason.WRONG_SIZE, Reason.NOT_FINITE, Reason.REFUSED])
def test_one_who_has_answered_for_good_is_not(reason):
    with pytest.raises(QuorumError, match="got 0 of 1 gradients"):
        gather(reason)
