"""Drills: the schedule is data drawn from a seed, wires do what they are told, checks can fail."""

import json
import os
import socket
import threading
from itertools import pairwise

import numpy as np
import pytest

from garfield.apps.settings import Settings
from garfield.core.blame import unforeseen
from garfield.launch.drill import checks, nodes
from garfield.launch.drill.checks import Broken
from garfield.launch.drill.nodes import NodeStage
from garfield.launch.drill.ports import lasting_ports
from garfield.launch.drill.rehearsal import DrillReport, Outcome
from garfield.launch.drill.schedule import (
    LAUNCHER,
    Fault,
    FaultKind,
    StageKind,
    chosen_kinds,
    draw,
    kinds_of,
)
from garfield.launch.drill.watch import Watch
from garfield.launch.drill.wires import Passage, Wires
from garfield.runs.checkpoints import Checkpoint, Checkpoints
from tests.command import invoke

NODES = ("server-0", "worker-0", "worker-1")


# -- the schedule -------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", StageKind)
def test_the_same_seed_draws_the_same_faults_and_another_one_others(stage):
    one = draw(3, stage, NODES, 40)
    assert one == draw(3, stage, NODES, 40)
    assert one != draw(4, stage, NODES, 40)
    assert len({str(fault) for fault in one.faults}) > 20


@pytest.mark.parametrize("stage", StageKind)
def test_all_that_is_possible_is_done_to_everybody_sooner_or_later(stage):
    faults = draw(0, stage, NODES, 400).faults
    assert {fault.kind for fault in faults} == set(kinds_of(stage))
    struck = {fault.node for fault in faults}
    assert struck - {LAUNCHER} == set(NODES)
    assert (LAUNCHER in struck) == (stage in (StageKind.MEMORY, StageKind.SIMULATION))
    assert all(0 < fault.lasts_s <= 2.5 for fault in faults)


def test_a_launcher_that_lost_a_node_is_resumed_before_it_loses_another():
    faults = draw(1, StageKind.MEMORY, NODES, 400).faults
    for fault, then in pairwise(faults):
        if fault.kind is FaultKind.KILL and fault.node != LAUNCHER:
            assert then.node == LAUNCHER
            assert then.kind is not FaultKind.FULL_DISK


def test_only_some_kinds_are_drawn_if_one_likes_and_unknown_ones_refused():
    kinds = chosen_kinds(StageKind.TCP, ["kill", "cut"])
    drawn = {fault.kind for fault in draw(0, StageKind.TCP, NODES, 50, kinds=kinds).faults}
    assert drawn == {FaultKind.KILL, FaultKind.CUT}
    done = invoke(["drill", "--config", os.devnull, "--only", "kil"])
    assert done.exit_code == 2
    assert "Did you mean kill?" in done.stderr


def test_a_drill_must_be_told_of_what_and_by_which_way():
    assert "either --cluster FILE.toml or --config" in invoke(["drill"]).stderr
    wrong = invoke(["drill", "--config", os.devnull, "--by", "tpc"])
    assert wrong.exit_code == 2
    assert "Did you mean tcp?" in wrong.stderr


def test_a_fault_says_what_is_done_to_whom_and_when():
    fault = Fault(FaultKind.CUT, "worker-1", 7, 1.25)
    assert str(fault) == "cut worker-1 after 7 steps, for 1.2 s"
    assert str(Fault(FaultKind.KILL, LAUNCHER, 0, 2.0, True)) == "kill launcher 2.0 s after a start"


# -- wires --------------------------------------------------------------------------------------


@pytest.fixture
def echo():
    """The port of a peer that says again what it hears."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve():
        while not ended.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=again, args=(connection,), daemon=True).start()

    def again(connection):
        with connection:
            while data := connection.recv(4096):
                connection.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    yield listening.getsockname()[1]
    ended.set()
    listening.close()


def asked(port):
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(b"hello")
    return connection


def test_a_wire_passes_on_what_is_said_and_holds_it_back_while_it_is_cut(echo):
    with Wires() as wires:
        port = wires.lay("server-0", "worker-0", echo)
        wires.lay("worker-0", "server-0", echo)
        assert set(wires.around("worker-0")) == {("server-0", "worker-0"), ("worker-0", "server-0")}
        assert wires.to("worker-0") == [("server-0", "worker-0")]
        with asked(port) as link:
            assert link.recv(5) == b"hello"
            wires.set(wires.around("worker-0"), Passage.CUT)
            link.sendall(b"again")
            link.settimeout(0.3)
            with pytest.raises(TimeoutError):
                link.recv(5)
            wires.set(wires.around("worker-0"), Passage.OPEN)
            link.settimeout(30)
            assert link.recv(5) == b"again"


def test_a_wire_that_refuses_resets_what_is_there_and_what_comes(echo):
    with Wires() as wires:
        port = wires.lay("server-0", "worker-0", echo)
        with asked(port) as link:
            assert link.recv(5) == b"hello"
            wires.set(wires.to("worker-0"), Passage.REFUSED)
            assert _is_over(link)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as late:
            assert _is_over(late)


def test_a_misled_wire_ends_at_a_stranger_who_says_something_else(echo):
    with Wires() as wires:
        port = wires.lay("server-0", "worker-0", echo)
        wires.set(wires.to("worker-0"), Passage.MISLED)
        with asked(port) as link:
            try:
                heard = link.recv(5)
            except ConnectionResetError:
                heard = b""
            assert heard != b"hello"


def _is_over(link):
    try:
        return link.recv(5) == b""
    except ConnectionResetError:
        return True


def test_ports_that_last_are_none_that_the_system_gives_away():
    ports = lasting_ports(20)
    assert len(set(ports)) == 20
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        lowest = int(file.read().split()[0])
    assert max(ports) < lowest


# -- checks -------------------------------------------------------------------------------------


def _saved(directory, name, step, vector=None):
    vector = np.zeros(3, np.float32) if vector is None else vector
    Checkpoints(directory).save(name, Checkpoint(step, vector, {"m": np.float64(0)}))


def _names(violations):
    return [each.broken for each in violations]


def test_a_checkpoint_that_is_cut_or_not_finite_is_seen(tmp_path):
    _saved(tmp_path, "server-0", 5)
    assert checks.checkpoints([tmp_path]) == []
    _saved(tmp_path, "server-1", 5, np.full(3, np.nan, np.float32))
    path = tmp_path / "server-0-00000005.safetensors"
    path.write_bytes(path.read_bytes()[:40])
    assert _names(checks.checkpoints([tmp_path])) == [Broken.CHECKPOINT, Broken.MODEL]


def test_the_newest_step_is_one_that_enough_servers_have(tmp_path):
    for name, step in (("server-0", 10), ("server-1", 10), ("server-0", 15)):
        _saved(tmp_path, name, step)
    places = dict.fromkeys(("server-0", "server-1", "server-2"), tmp_path)
    assert checks.newest_step(places, 1) == 15
    assert checks.newest_step(places, 2) == 10
    assert checks.newest_step(places, 3) == 0


def test_what_is_left_behind_is_seen(tmp_path):
    (tmp_path / "torchinductor_me").mkdir()  # torch keeps it for its next process
    assert checks.temporary(tmp_path) == []
    (tmp_path / "garfield-x1").mkdir()
    (tmp_path / ".config.toml.77.part").touch()
    assert _names(checks.temporary(tmp_path)) == [Broken.FILE, Broken.FILE]
    assert _names(checks.half_written([tmp_path])) == [Broken.FILE]
    assert checks.descriptors({"a": 40}, {"a": 60, "b": 900}) == []
    assert _names(checks.descriptors({"a": 40}, {"a": 400})) == [Broken.DESCRIPTOR]


def test_bad_models_false_accusations_and_tracebacks_are_seen():
    assert checks.models({"server-0": 0.85}, {"server-0": 0.9}) == []
    assert _names(checks.models({"server-0": 0.5}, {"server-0": 0.9})) == [Broken.MODEL]
    accused = {"server-0": ["worker-3: wrong size"], "worker-3": ["worker-0: garbage"]}
    assert checks.framed(accused, ["worker-3"]) == []
    assert _names(checks.framed(accused, [])) == [Broken.FRAMED, Broken.FRAMED]
    printed = "Traceback (most recent call last):\n  File x, line 1\nValueError: no\nand on\n"
    [seen] = checks.messages({"worker-0": printed, "worker-1": "Error: no."})
    assert str(seen) == "message: worker-0 printed a traceback: ValueError: no"
    [seen] = checks.messages({"worker-0": f"so far\nError: {unforeseen(ValueError('no'))}\n"})
    assert "Error: ValueError: no. Not foreseen" in str(seen)


def test_metrics_are_read_as_they_grow_cut_lines_and_all(tmp_path):
    path = tmp_path / "metrics.jsonl"
    watch = Watch({"server-0": path})
    watch.look()
    step = {"event": "step", "node": "server-0", "step": 4, "accuracy": 0.9}
    faults = {"worker-1": {"garbage": {}, "no answer": {}}}
    path.write_text(json.dumps(step) + '\n{"event": "st')
    watch.look()
    assert (watch.steps, watch.accuracy) == ({"server-0": 4}, {"server-0": 0.9})
    with path.open("a") as file:
        file.write('\n{"event": "resumed", "step": 4}\n')
        file.write(json.dumps({**step, "step": 5, "accuracy": 0.7, "faults": faults}) + "\n")
    watch.look()
    assert watch.steps == {"server-0": 5}
    assert (watch.accuracy, watch.best) == ({"server-0": 0.7}, {"server-0": 0.9})
    assert watch.resumed["server-0"] == [4]
    assert watch.accused["server-0"] == {"worker-1: garbage"}
    assert watch.behind({}, ["server-0"], []) == ["server-0"]  # two steps are too few
    assert watch.behind({}, [], ["server-0"]) == []


class PaperNodes:
    """Instead of a supervisor: nodes that only write metrics, a step each time one looks."""

    def __init__(self, directory):
        self._directory, self._starts_in, self._step = directory, {}, 200
        self.pids, self.exit_codes = {}, {}

    def __call__(self, preload):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def _tell(self, name, **event):
        with (self._directory / name / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"node": name, "step": self._step, **event}) + "\n")

    def start(self, name, *_):
        (self._directory / name).mkdir(exist_ok=True)
        self.pids[name], self._starts_in[name] = os.getpid(), 5

    def events(self, timeout_s):
        self._step += 1
        for name in self.pids:
            self._starts_in[name] -= 1
            if self._starts_in[name] == 0 and self._step > 210:
                self._tell(name, event="resumed", step=210)
            if self._starts_in[name] < 0:
                self._tell(name, event="step")

    def is_running(self, name):
        return name in self.pids

    def signal(self, name, number):
        if name in self.pids:
            self._tell(name, event="step")  # the last one, which nobody has read yet
            del self.pids[name]
            self.exit_codes[name] = -number


def test_what_a_server_told_before_it_was_killed_is_no_sign_that_it_is_back(tmp_path, monkeypatch):
    """A checkpoint was said to be lost that the server had yet to read."""
    monkeypatch.setattr(nodes, "Supervisor", PaperNodes(tmp_path))
    settings = Settings.of(app="ssmw", workers=2, data="digits", model="digits_mlp")
    with NodeStage(settings, tmp_path, tls=False, command=print, patience_s=5.0) as stage:
        assert stage.start() == []
        _saved(tmp_path / "server-0/checkpoints", "server-0", 210)
        kill = Fault(FaultKind.KILL, "server-0", 0, 0.0)
        assert stage.strike(kill) == []
        assert stage.watch.resumed["server-0"] == [210]
        _saved(tmp_path / "server-0/checkpoints", "server-0", 300)
        assert _names(stage.strike(kill)) == [Broken.CHECKPOINT]


def test_only_faults_that_were_done_are_counted():
    """A drill that broke off at its start counted for all that it had planned."""
    schedule = draw(0, StageKind.TCP, NODES, 5)
    report = DrillReport(schedule, [Outcome("start", 0, 1.0)])
    assert report.to_json()["faults"] == 0
    report.outcomes += [Outcome(str(fault), 0, 1.0) for fault in schedule.faults[:2]]
    assert report.to_json()["faults"] == 2
