"""Where servers say to stand: when a worker knows enough of it, and what it then comes to."""

from math import inf
from types import SimpleNamespace

import pytest

from garfield.nodes.outbox import Outbox
from garfield.nodes.standing import STANDING, until_known, went_back_to
from garfield.transport.contract import NEWEST, Key


def asked_at(step, n, f, *said):
    """How long a worker at that step still waits when so many have said where they stand."""
    steps = {f"server-{i}": at for i, at in enumerate(said)}
    return until_known(step, n=n, f=f)(SimpleNamespace(steps=steps))


@pytest.mark.parametrize(
    ("said", "left_s"),
    [
        ((), inf),
        ((20, 20, 20), inf),  # one more could be the fourth
        ((20, 20, 20, 20), 0.0),  # four of five take it back
        ((31, ), inf),  # the other four could all have gone back
        ((31, 30), 0.0),  # no four are left who could
        ((20, 29, 29), 0.0),  # nor where these are at the step before the last
    ],
)  # fmt: skip
def test_a_worker_asks_until_the_rest_can_change_nothing(said, left_s):
    assert asked_at(31, 5, 1, *said) == left_s


def test_the_only_server_has_gone_back_if_it_lacks_the_model_that_its_worker_got():
    assert went_back_to({"server-0": 29}, 31, n=1, f=0) == 29
    assert went_back_to({"server-0": 30}, 31, n=1, f=0) is None
    assert asked_at(31, 1, 0, 29) == asked_at(31, 1, 0, 30) == 0.0


def test_the_only_server_is_trusted_whatever_number_of_faults_is_borne():
    assert went_back_to({"server-0": 20}, 31, n=1, f=1) == 20


def test_what_a_node_says_of_its_standing_nobody_can_change():
    outbox = Outbox()
    outbox.publish(Key("model", 6), [1.0, 2.0])
    said = outbox.answer("worker-0", Key(STANDING.name, NEWEST, 3))
    assert said.step == 6
    with pytest.raises(ValueError, match="read-only"):
        said.payload[0] = 1.0
