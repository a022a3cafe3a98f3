"""A node that is frozen (kill -STOP) and never thawed: the run ends without it, and says so."""

import pytest

from garfield.apps.settings import Settings
from garfield.core.errors import NodeFailed
from garfield.launch.processes import Fault, Processes
from tests.processes.test_faults import is_alive

pytestmark = pytest.mark.timeout(150)  # what is tested here once lasted for ever

BASE = Settings.of(
    model="digits_mlp", data="digits", workers=5, steps=12, evaluate_every=0, f_workers=1,
    gar="median", timeout_s=1.0, give_up_s=15.0,
)  # fmt: skip
TOLERANT = {
    "msmw": {"app": "msmw", "servers": 4, "f_servers": 1},
    "msmw, asynchronous": {"app": "msmw", "servers": 4, "f_servers": 1, "asynchronous": True},
    "decentralized": {"app": "decentralized", "workers": 6},
}


def run(settings, *faults):
    """All events of a run with these faults, and how it failed; afterwards nobody is left."""
    events, failure = [], None
    with Processes(settings) as nodes:
        nodes.start()
        try:
            nodes.run(events.append, faults)
        except NodeFailed as failed:
            failure = str(failed)
        pids = dict(nodes.pids)
    assert not [name for name, pid in pids.items() if is_alive(pid)]
    return events, failure


def told_of(events, node):
    return [e["error"] for e in events if e.get("node") == node and e["event"] == "failed"]


@pytest.mark.heavy
@pytest.mark.parametrize("app", TOLERANT)
def test_a_frozen_server_that_the_run_tolerates_is_ended_when_the_others_are_done(app):
    settings = BASE.updated(**TOLERANT[app], steps=40)  # so that none is done before it is frozen
    frozen = settings.server_names[-1]
    events, failure = run(settings, Fault(frozen, 4, "freeze"))
    assert failure is None
    done = {event["node"] for event in events if event["event"] == "done"}
    assert done >= set(settings.server_names[:-1])
    [told] = told_of(events, frozen)
    assert told == (
        f"{frozen} has not answered for 5 s and all other servers are done: it may be frozen. Its "
        "process was ended."
    )


@pytest.mark.heavy
@pytest.mark.slow
def test_a_frozen_server_that_the_run_cannot_do_without_fails_it_when_the_others_have_given_up():
    settings = BASE.updated(app="msmw", servers=3, f_servers=1, give_up_s=3.0)
    events, failure = run(settings, Fault("server-2", 4, "freeze"))
    assert "server-0 got " in failure  # what it could not get is in its own words
    assert "server-2 has not answered" in failure
    assert len(told_of(events, "server-2")) == 1


@pytest.mark.heavy
def test_the_only_server_frozen_fails_the_run_after_give_up_s():
    settings = BASE.updated(app="ssmw", give_up_s=3.0)
    _, failure = run(settings, Fault("server-0", 4, "freeze"))
    assert failure == "server-0 has not answered for 5 s: it may be frozen. Its process was ended."


@pytest.mark.heavy
def test_a_server_that_is_thawed_in_time_is_not_ended():
    settings = BASE.updated(**TOLERANT["msmw"], steps=60)
    events, failure = run(
        settings, Fault("server-3", 4, "freeze"), Fault("server-3", 20, "thaw")
    )  # fmt: skip
    assert failure is None
    assert told_of(events, "server-3") == []
    assert "server-3" in {event["node"] for event in events if event["event"] == "done"}
