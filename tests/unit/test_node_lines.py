"""What a node says while it runs alone: of peers that lie, and of peers that it waits for."""

from math import inf
from types import SimpleNamespace

from garfield.core.silence import Reason
from garfield.launch.wait_notices import NoticedWaits
from garfield.report.peer_warnings import PeerWarnings
from garfield.transport.contract import NEWEST, Key


def step(number, **faults):
    """A server's event; of each worker, how often what was seen of it."""
    told = {
        f"worker-{peer}": {reason.value: {"times": times, "detail": reason.value}}
        for peer, (reason, times) in enumerate(faults.values())
    }
    sums = {"bytes_sent": 1, "bytes_received": 1, "communication_s": 0, "aggregation_s": 0}
    return {
        "event": "step",
        "node": "server-0",
        "step": number,
        "time_s": 1,
        **sums,
        "faults": told,
    }


def test_1481_lies_are_four_lines_and_one_at_the_end():
    warnings, said = PeerWarnings("server-0"), []
    for t in range(1, 1482):
        said += warnings.take(step(t, liar=(Reason.NOT_FINITE, t)))
    assert said == [
        f"warning: worker-0 lied to server-0, {times}: not finite"
        for times in ("once", "10 times", "100 times", "1000 times")
    ]
    assert [*warnings.ended()] == ["worker-0 lied: 1481× not finite"]


def test_silence_is_told_as_silence_and_what_blames_nobody_not_at_all():
    warnings = PeerWarnings("server-0")
    event = step(3, silent=(Reason.NO_ANSWER, 2), blameless=(Reason.GONE, 9))
    assert [*warnings.take(event)] == [
        "warning: worker-0 was not heard by server-0, 2 times: no answer"
    ]
    assert [*warnings.ended()] == ["worker-0 was silent: 2× no answer"]


def test_a_model_that_diverged_proves_nothing_against_workers():
    warnings = PeerWarnings("server-0")
    assert [*warnings.take(step(3, honest=(Reason.NOT_FINITE, 1)))]
    diverged = {"event": "diverged", "node": "server-0", "step": 3, "error": "not finite"}
    assert [*warnings.take(diverged)] == []
    assert [*warnings.ended()] == ["worker-0 was silent: 1× not finite"]


class Pulling:
    """A transport whose peers never answer; its clock goes on as long as it is told to wait."""

    name = "worker-0"

    def __init__(self, peers):
        self.now_s, self.heard = 0.0, SimpleNamespace(open=peers, rows={})
        self.asked = 0

    def pull(self, peers, key, *, length, until, timeout_s, stall_s=None):
        while self.now_s < timeout_s:
            wait_s = until(self.heard)
            self.asked += 1
            if wait_s == 0:
                return
            self.now_s += min(wait_s, timeout_s - self.now_s)


def waits(transport, until, timeout_s=60):
    events = []
    noticed = NoticedWaits(transport, events.append, 10.0, lambda: transport.now_s)
    noticed.pull(["server-0"], Key("model", 4), length=3, until=until, timeout_s=timeout_s)
    return [event["error"] for event in events]


def test_a_long_wait_is_told_each_time_that_it_has_doubled():
    transport = Pulling(["server-1", "server-0"])
    assert waits(transport, lambda heard: inf) == [
        f"worker-0 has waited {s} s for the model of step 4 of server-0, server-1"
        for s in (10, 20, 40)
    ]
    assert transport.asked < 10


def test_a_short_wait_is_not_told_and_ends_when_it_would_have():
    transport = Pulling(["server-0"])
    assert waits(transport, lambda heard: max(0.0, 9.0 - transport.now_s)) == []
    assert transport.now_s == 9.0


def test_looking_where_servers_stand_is_still_the_same_wait():
    transport, events = Pulling(["server-0"]), []
    noticed = NoticedWaits(transport, events.append, 10.0, lambda: transport.now_s)
    for ends_s in (6.0, 12.0, 18.0, 24.0):
        for key in (Key("model", 4), Key("standing", NEWEST, 4)):
            until = lambda heard, ends_s=ends_s: max(0.0, ends_s - transport.now_s)  # noqa: E731
            noticed.pull(["server-0"], key, length=3, until=until, timeout_s=60)
    assert [event["error"].split(" for ")[0] for event in events] == [
        "worker-0 has waited 10 s", "worker-0 has waited 20 s",
    ]  # fmt: skip
