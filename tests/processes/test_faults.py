"""Real processes, faults scheduled by place and step: training goes on, nothing stays behind."""

import os
from contextlib import suppress

import pytest

from garfield.apps.settings import Settings
from garfield.core.errors import NodeFailed
from garfield.launch.node import NodeOptions
from garfield.launch.node_checkpoints import NodeCheckpoints
from garfield.launch.processes import Fault, Processes

BASE = Settings.of(
    model="digits_mlp", data="digits", workers=7, steps=40, evaluate_every=0,
    timeout_s=1.0, give_up_s=15.0,
)  # fmt: skip


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def run(settings, *faults, until=lambda events: False):
    """All events of a run with these faults, up to the one that is waited for, if any is.

    Afterwards nobody is left.
    """
    events = []

    class Enough(Exception):  # noqa: N818 (a reason to stop, not an accident)
        pass

    def take(event):
        events.append(event)
        if until(events):
            raise Enough

    with Processes(settings) as nodes:
        nodes.start()
        pids = dict(nodes.pids)
        with suppress(Enough):
            nodes.run(take, faults)
        pids |= nodes.pids
    assert not [name for name, pid in pids.items() if is_alive(pid)]
    return events


def last(events, node):
    return [event for event in events if event.get("node") == node and "accuracy" in event][-1]


@pytest.mark.heavy
def test_f_workers_are_killed_and_training_goes_on():
    settings = BASE.updated(f_workers=2)
    events = run(settings, Fault("worker-1", 5), Fault("worker-4", 10))
    final = last(events, "server-0")
    assert final["step"] == 40
    assert final["accuracy"] > 0.8
    assert set(final["silent"]) == {"worker-1", "worker-4"}


@pytest.mark.heavy
@pytest.mark.slow
def test_the_primary_is_killed_and_the_next_server_takes_over():
    settings = BASE.updated(app="crash-tolerant", servers=3, f_servers=1)
    events = run(settings, Fault("server-0", 10))
    assert last(events, "server-1")["step"] == 40
    assert last(events, "server-1")["accuracy"] > 0.8


@pytest.mark.heavy
def test_a_worker_that_freezes_is_no_longer_waited_for():
    events = run(BASE.updated(f_workers=1), Fault("worker-2", 5, "freeze"))
    final = last(events, "server-0")
    assert final["accuracy"] > 0.8
    assert final["time_s"] < 30  # two time-outs of a second, not one in each of 35 rounds


def steps_of(events, node):
    return [e for e in events if e.get("node") == node and e["event"] == "step"]


@pytest.mark.heavy
def test_a_worker_that_was_out_of_reach_is_heard_again_when_it_is_back():
    """To its peers a frozen process is one behind a link that is down: connected, and silent."""
    settings = BASE.updated(f_workers=1, gar="median", steps=100_000)  # more than it takes
    away = []

    def heard_again(events):
        step = events[-1]
        if step.get("node") == "server-0" and step["event"] == "step" and step["step"] > 5:
            away.extend([step] if "worker-2" in step["silent"] else [])
            return len(away) >= 20 and step["gradients"] == 7
        return False

    frozen, thawed = Fault("worker-2", 5, "freeze"), Fault("worker-2", 30, "thaw")
    events = run(settings, frozen, thawed, until=heard_again)
    assert len(away) >= 20
    assert steps_of(events, "server-0")[-1]["gradients"] == 7


@pytest.mark.heavy
def test_a_server_that_was_out_of_reach_catches_up_when_it_is_back():
    settings = BASE.updated(app="msmw", servers=4, f_servers=1, steps=300)
    events = run(settings, Fault("server-2", 10, "freeze"), Fault("server-2", 60, "thaw"))
    steps = [event["step"] for event in steps_of(events, "server-2")]
    assert steps[-1] == 300
    assert steps == sorted(set(steps))
    assert not set(range(20, 50)) & set(steps)  # what it missed is not done again
    assert abs(last(events, "server-2")["accuracy"] - last(events, "server-0")["accuracy"]) < 0.02


@pytest.mark.heavy
def test_a_primary_that_comes_back_does_no_harm():
    settings = BASE.updated(app="crash-tolerant", servers=3, f_servers=1, steps=120)
    events = run(settings, Fault("server-0", 10, "freeze"), Fault("server-0", 60, "thaw"))
    assert last(events, "server-1")["step"] == 120
    assert last(events, "server-1")["accuracy"] > 0.8


@pytest.mark.heavy
def test_a_server_restarted_far_behind_rejoins_from_its_peers():
    settings = BASE.updated(app="msmw", servers=4, f_servers=1, steps=150)
    events = run(settings, Fault("server-2", 10, "restart"))
    assert last(events, "server-0")["accuracy"] > 0.8
    killed = next(at for at, event in enumerate(events) if event["event"] == "failed")
    steps = [event["step"] for event in steps_of(events[killed:], "server-2")]
    assert steps[-1] == 150
    # it began anew, and never went back to what was over; the step that it was killed at may be
    # the one at which it joins again, as the others wait for it a while
    assert steps == sorted(set(steps))
    assert steps[0] >= 9


@pytest.mark.heavy
@pytest.mark.slow
def test_more_dead_workers_than_f_stop_the_run_and_are_named():
    events = []
    settings = BASE.updated(f_workers=1, gar="median", give_up_s=4.0)
    with Processes(settings) as nodes:
        nodes.start()
        with pytest.raises(NodeFailed):
            nodes.run(events.append, [Fault("worker-1", 5), Fault("worker-4", 5)])
    failure = next(e for e in events if e["event"] == "failed" and e["node"] == "server-0")
    assert "worker-1: connection" in failure["error"]
    assert "worker-4: connection" in failure["error"]


@pytest.mark.heavy
def test_a_server_that_wakes_when_all_others_are_done_still_gets_the_last_model():
    settings = BASE.updated(app="msmw", servers=4, f_servers=1, workers=4, f_workers=1)
    settings = settings.updated(gar="median")
    events = run(settings, Fault("server-2", 30, "freeze"), Fault("server-2", 40, "thaw"))
    assert not [event for event in events if event["event"] == "failed"]
    assert last(events, "server-2")["step"] == 40
    assert abs(last(events, "server-2")["accuracy"] - last(events, "server-0")["accuracy"]) < 0.02


@pytest.mark.slow
def test_the_only_server_restarted_goes_on_from_what_it_saved_and_takes_its_workers_back(tmp_path):
    settings = BASE.updated(workers=4, f_workers=1, gar="median", steps=60, checkpoint_every=10)
    settings = settings.updated(give_up_s=60.0)  # a busy machine takes long to start a process
    events, options = [], NodeOptions(checkpoints=NodeCheckpoints(tmp_path))
    with Processes(settings, options) as nodes:
        nodes.start()
        nodes.run(events.append, [Fault("server-0", 28, "restart")])
    steps = [event["step"] for event in steps_of(events, "server-0")]
    begun = next(at for at in range(1, len(steps)) if steps[at] <= steps[at - 1])
    assert steps[begun] > 20
    assert steps[begun] % 10 == 1
    assert steps[begun:] == list(range(steps[begun], 61))
    assert last(events, "server-0")["accuracy"] > 0.8
    # one that is late on a busy machine goes on from a later step, of which nothing was saved
    lost = [event["step"] for event in events if event["event"] == "no-velocity"]
    assert all(step > steps[begun] for step in lost)
