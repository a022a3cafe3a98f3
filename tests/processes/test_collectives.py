"""The trusted baseline over torch's collectives: real processes, and what a fault does to them."""

import numpy as np
import psutil
import pytest
import torch

from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError, GarfieldError, NodeFailed, UnknownName
from garfield.core.silence import Reason, Silence
from garfield.launch.node import NodeOptions
from garfield.launch.node_checkpoints import NodeCheckpoints
from garfield.launch.processes import Fault, Processes
from garfield.nodes.outbox import Outbox
from garfield.runs.checkpoints import Checkpoints, read_checkpoint
from garfield.transport.collectives import CollectiveTransport
from garfield.transport.contract import Key, first
from tests.marks import heavy_but

BASE = Settings.of(
    app="vanilla", model="digits_mlp", data="digits", workers=3, steps=12, evaluate_every=0,
    timeout_s=2.0, give_up_s=4.0, transport="gloo",
)  # fmt: skip


def final_model(settings, directory):
    events = []
    with Processes(settings, NodeOptions(checkpoints=NodeCheckpoints(directory))) as nodes:
        nodes.start()
        nodes.run(events.append)
    saved = read_checkpoint(Checkpoints(directory).saved("server-0")[settings.steps])
    return saved.vector, [event for event in events if event["event"] == "step"]


@pytest.mark.heavy
def test_collectives_and_grpc_end_at_the_same_model_bit_for_bit(tmp_path):
    by_gloo, steps = final_model(BASE, tmp_path / "gloo")
    by_grpc, _ = final_model(BASE.updated(transport="grpc"), tmp_path / "grpc")
    np.testing.assert_array_equal(by_gloo, by_grpc)
    assert [event["step"] for event in steps] == list(range(1, 13))
    vector = 4 * 4810
    assert steps[-1]["bytes_sent"] == steps[-1]["bytes_received"] == 12 * 3 * vector


@pytest.mark.heavy
def test_a_resumed_run_goes_on_over_collectives(tmp_path):
    settings = BASE.updated(momentum=0.0)
    whole, _ = final_model(settings, tmp_path / "whole")
    final_model(settings.updated(steps=5), tmp_path / "parts")
    checkpoints = NodeCheckpoints(tmp_path / "parts").resumed(["server-0"], ["server-0"])
    assert checkpoints.start.step == 5
    with Processes(settings, NodeOptions(checkpoints=checkpoints)) as nodes:
        nodes.start()
        nodes.run(lambda event: None)
    saved = read_checkpoint(Checkpoints(tmp_path / "parts").saved("server-0")[12])
    np.testing.assert_array_equal(saved.vector, whole)


CRASHES = heavy_but(
    [("kill", "connection lost"), ("freeze", "no answer in")], ("kill", "connection lost")
)


@pytest.mark.heavy
@pytest.mark.parametrize(("kind", "why"), CRASHES)
def test_one_that_fails_ends_the_run_and_is_named(kind, why):
    events = []
    with Processes(BASE.updated(steps=100_000)) as nodes:
        nodes.start()
        pids = dict(nodes.pids)
        with pytest.raises(NodeFailed, match=rf"needs 3.*worker-1: {why}"):
            nodes.run(events.append, [Fault("worker-1", 5, kind)])
    failure = next(e for e in events if e["event"] == "failed" and e["node"] == "server-0")
    assert "worker-0: waits with us for the others" in failure["error"]
    assert not [pid for pid in pids.values() if psutil.pid_exists(pid)]


@pytest.mark.heavy
@pytest.mark.slow
def test_a_run_that_is_stopped_midway_ends_by_itself():
    def sink(event):
        if event.get("step", 0) >= 5:
            raise KeyboardInterrupt

    nodes = Processes(BASE.updated(steps=100_000))
    try:
        nodes.start()
        with pytest.raises(KeyboardInterrupt):
            nodes.run(sink)
        nodes._sink = lambda event: None
    finally:
        nodes.stop()
    assert list(nodes.exit_codes.values()) == [0] * 4  # a kill would be -9


@pytest.mark.heavy
def test_the_group_listens_on_loopback_only():
    listening = []

    def look(event):
        if event.get("step") == 3:
            connections = psutil.Process(nodes.pids["server-0"]).net_connections("inet")
            listening.extend(c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN)

    with Processes(BASE) as nodes:
        nodes.start()
        nodes.run(look)
    assert listening
    assert set(listening) == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"app": "ssmw"}, "ssmw must survive faults, and with gloo one silent peer ends"),
        ({"app": "crash-tolerant"}, "crash-tolerant must survive faults"),
        ({"app": "msmw", "servers": 3}, "msmw must survive faults"),
        ({"app": "decentralized"}, "decentralized must survive faults"),
        ({"simulate": True}, "no --simulate"),
        ({"worker_attack": "reverse", "byzantine_workers": 1}, "no attacks"),
        ({"transport": "nccl"}, "nccl needs a GPU for each of the 4 nodes, and here are "),
    ],
)
def test_what_collectives_cannot_carry_is_refused_before_anything_starts(changes, message):
    if changes.get("transport") == "nccl" and torch.cuda.device_count() >= 4:
        pytest.skip("here are enough GPUs")
    with pytest.raises(ConfigError, match=message):
        BASE.updated(**changes).check()


def test_a_misspelt_transport_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownName, match=r"glo is not a transport\. Did you mean gloo\?"):
        BASE.updated(transport="glo").check()


def test_one_that_waits_for_a_group_says_who_has_not_joined_it():
    transport = CollectiveTransport("server-0", ["server-0", "worker-0", "worker-1"], {})
    transport.serve(Outbox())
    names = ["worker-0", "worker-1"]
    late = Silence(Reason.UNREACHABLE, "has not joined in 0.2 s")
    replies = transport.pull(names, Key("gradient", 0), length=4, until=first(2), timeout_s=0.2)
    assert replies.names == ()
    assert replies.silent == dict.fromkeys(names, late)
    transport.close()


def test_nothing_but_models_and_gradients_is_carried():
    transport = CollectiveTransport("server-0", ["server-0", "worker-0"], {})
    with pytest.raises(GarfieldError, match="can ask worker-0 for gradients"):
        transport.pull(["worker-0"], Key("proposal", 0), length=4, until=first(1), timeout_s=0.2)
