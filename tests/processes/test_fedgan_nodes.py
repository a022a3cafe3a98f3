"""A federated GAN in processes, over gRPC with TLS: faults by place and time, and what is left."""

import os
import signal
import sqlite3
import time
from contextlib import closing

import pytest
import torch
from safetensors.torch import load_file

from garfield.core.config import made
from garfield.core.errors import ConfigError, NodeFailed
from garfield.fedgan.nodes.process_training import ProcessTraining
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.state import open_state_database
from garfield.fedgan.training import train
from garfield.runs.run_directory import RunDirectory
from tests.marks import heavy_but

pytestmark = pytest.mark.slow

SMALL = {
    "gan": "lsgan(width=0.125)", "data": "fashion-small", "partition": "iid", "devices": 3,
    "fraction": 0.67, "local_steps": 2, "batch": 8, "rounds": 4, "judge": "none",
    "evaluate_every": 0, "seed": 5,
}  # fmt: skip


class Enough(Exception):  # noqa: N818 (it ends a run that has shown what it should)
    pass


class Run:
    """A training in processes, to whom something is done when a round is over.

    Whoever waits for something to happen in it gives it more rounds than it will need, so that it
    is never over before, however busy the machine.
    """

    def __init__(self, path, **changes):
        self.settings = made(FedganSettings, SMALL | changes)
        self.directory = RunDirectory(path)
        self.events, self.training = [], None

    def __call__(self, *script, resume=False):
        """`script`: pairs of what to wait for in a round's event, and what to do then."""
        left = list(script)
        outer = self

        class Watched(ProcessTraining):
            def __init__(self, *given):
                super().__init__(*given)
                outer.training = self

        def tell(event):
            self.events.append(event)
            if event["event"] == "round" and left and left[0][0](event):
                left.pop(0)[1]()

        train(self.settings, self.directory, tell, resume=resume, kind=Watched)
        assert not left

    def until(self, *script):
        """Play the script and be content."""
        with pytest.raises(Enough):
            self(*script)

    def signal(self, number, *names):
        for name in names:
            os.kill(self.training.supervisor.pids[name], number)

    def rounds(self):
        """What was told of rounds: each once, without a gap."""
        found = [event for event in self.directory.events() if event["event"] == "round"]
        assert [event["round"] for event in found] == list(range(len(found)))
        return found

    def lost(self):
        return [event["node"] for event in self.events if event["event"] == "lost"]

    def weights(self):
        return load_file(self.directory.path / "weights" / "generator.safetensors")


def enough():
    raise Enough


def after(count):
    return lambda event: event["round"] + 1 >= count


MANY = 100_000


@pytest.fixture
def one_thread():
    """As in processes: sums of several threads have other bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def simulated(tmp_path, one_thread):
    def weights(**changes):
        settings = made(FedganSettings, SMALL | changes | {"simulate": True})
        directory = RunDirectory(tmp_path / f"simulated-{len(list(tmp_path.iterdir()))}")
        train(settings, directory, lambda event: None)
        return load_file(directory.path / "weights" / "generator.safetensors")

    return weights


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.mark.parametrize("optimizer_state", heavy_but(["reset", "average"], "reset"))
def test_processes_learn_the_bits_that_simulated_devices_learn(
    optimizer_state, tmp_path, simulated
):
    run = Run(tmp_path / "run", optimizer_state=optimizer_state)
    run()
    assert len(run.rounds()) == 4
    assert same(run.weights(), simulated(optimizer_state=optimizer_state))


@pytest.mark.parametrize("public", heavy_but([None, "fashion-small"], None))
def test_processes_without_labels_find_the_clusters_and_the_bits_of_simulated_ones(
    public, tmp_path, simulated
):
    given = {"clusters": 4, "conditional": True, "public_images": public}
    run = Run(tmp_path / "run", **given)
    run()
    assert same(run.weights(), simulated(**given))
    published, theirs = (path.read_bytes() for path in sorted(tmp_path.glob("*/clusters.json")))
    assert published == theirs
    began = run.directory.events()[0]
    assert began["classes"] == [f"cluster {number}" for number in range(4)]
    assert sum(began["per_class"]) == 2000  # all images, each in some cluster


@pytest.mark.heavy
def test_clusters_outlive_the_server_that_published_them_and_the_run(tmp_path, simulated):
    given = {"clusters": 4, "conditional": True, "servers": 2, "lease_s": 1.0}
    run = Run(tmp_path / "run", rounds=MANY, **given)
    run.until(
        (after(2), lambda: run.signal(signal.SIGKILL, run.events[-1]["server"])),
        (lambda event: event["token"] == 2 and event["took_part"], enough),
    )
    published = (tmp_path / "run" / "clusters.json").read_bytes()
    (tmp_path / "run" / "clusters.json").unlink()
    held = len(run.rounds())
    run.settings = made(FedganSettings, SMALL | given | {"rounds": held + 20})
    run(resume=True)
    assert (tmp_path / "run" / "clusters.json").read_bytes() == published
    assert len(run.rounds()) == held + 20


def test_a_primary_that_is_killed_is_replaced_and_no_round_is_lost_or_told_twice(tmp_path):
    run = Run(tmp_path / "run", servers=2, lease_s=1.0, rounds=MANY)

    def kill_the_primary():
        run.signal(signal.SIGKILL, run.events[-1]["server"])

    run.until((after(2), kill_the_primary), (lambda event: event["token"] == 2, enough))
    rounds = run.rounds()
    tokens = [event["token"] for event in rounds]
    assert tokens == sorted(tokens)
    assert set(tokens) == {1, 2}
    first, then = rounds[0]["server"], rounds[-1]["server"]
    assert {first, then} == {"server-0", "server-1"}
    assert run.lost() == [first]


def test_a_primary_that_was_frozen_is_followed_by_nobody_when_it_thaws(tmp_path):
    run = Run(tmp_path / "run", servers=2, lease_s=1.0, rounds=MANY)
    frozen, thawed_at = [], []

    def freeze():
        frozen.append(run.events[-1]["server"])
        run.signal(signal.SIGSTOP, *frozen)
        while holds_a_lock(run.directory.path / "state.sqlite"):  # nobody could take over
            run.signal(signal.SIGCONT, *frozen)
            time.sleep(0.005)
            run.signal(signal.SIGSTOP, *frozen)

    def thaw():
        thawed_at.append(run.events[-1]["round"])
        run.signal(signal.SIGCONT, *frozen)

    run.until(
        (after(2), freeze),
        (lambda event: event["token"] == 2, thaw),
        (lambda event: event["round"] >= thawed_at[0] + 5, enough),
    )
    late = {event["server"] for event in run.rounds() if event["token"] == 2}
    assert late == {"server-0", "server-1"} - {*frozen}
    assert max(event["token"] for event in run.rounds()) == 2


def holds_a_lock(path):
    """Whether a process that stands still was stopped in the middle of writing; others go on."""
    with closing(sqlite3.connect(path, timeout=1.0, isolation_level=None)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        database.execute("ROLLBACK")
        return False


@pytest.mark.heavy
def test_a_device_that_is_frozen_is_left_out_of_its_rounds_and_comes_back(tmp_path):
    run = Run(tmp_path / "run", fraction=1.0, round_timeout_s=2.0, rounds=MANY)
    run.until(
        (lambda event: 1 in event["took_part"], lambda: run.signal(signal.SIGSTOP, "device-1")),
        (
            lambda event: set(event["took_part"]) == {0, 2},
            lambda: run.signal(signal.SIGCONT, "device-1"),
        ),
        (lambda event: 1 in event["took_part"], enough),
    )
    left_out = next(event for event in run.rounds() if 1 not in event["took_part"])
    assert "device-1" in left_out["refused"]["1"]


def test_a_late_device_aborts_the_round_if_so_chosen(tmp_path):
    run = Run(
        tmp_path / "run", fraction=1.0, round_timeout_s=2.0, rounds=MANY, late_devices="abort"
    )
    run.until(
        (lambda event: event["took_part"], lambda: run.signal(signal.SIGSTOP, "device-1")),
        (
            lambda event: not event["took_part"],
            lambda: run.signal(signal.SIGCONT, "device-1"),
        ),
        (lambda event: event["took_part"], enough),
    )
    assert {len(event["took_part"]) for event in run.rounds()} == {0, 3}
    aborted = next(event for event in run.rounds() if not event["took_part"])
    assert aborted["generator_loss"] is None
    assert "device-1" in aborted["refused"]["1"]


def test_a_device_that_is_gone_is_told_and_the_others_go_on(tmp_path):
    run = Run(tmp_path / "run", fraction=1.0, round_timeout_s=2.0, rounds=MANY)
    run.until(
        (after(1), lambda: run.signal(signal.SIGKILL, "device-2")),
        (lambda event: set(event["took_part"]) == {0, 1}, enough),
    )
    assert run.lost() == ["device-2"]


def test_without_any_device_it_ends_and_says_so(tmp_path):
    run = Run(tmp_path / "run", round_timeout_s=2.0, rounds=MANY)
    devices = ("device-0", "device-1", "device-2")
    with pytest.raises(NodeFailed, match="No device is left after round"):
        run((after(1), lambda: run.signal(signal.SIGKILL, *devices)))
    assert sorted(run.lost()) == [*devices]


def test_without_any_server_it_ends_and_is_resumed_behind_what_was_committed(tmp_path):
    run = Run(tmp_path / "run", rounds=MANY, lease_s=1.0)
    with pytest.raises(NodeFailed, match="No server is left"):
        run((after(2), lambda: run.signal(signal.SIGKILL, "server-0")))
    held = len(run.rounds())
    run.settings = made(FedganSettings, SMALL | {"rounds": held + 2, "lease_s": 1.0})
    run(resume=True)
    assert len(run.rounds()) == held + 2


def test_a_run_that_was_ended_in_good_order_goes_on_to_the_same_bits(tmp_path, simulated):
    run = Run(tmp_path / "run", rounds=MANY)
    run.until((after(2), enough))
    database = open_state_database(tmp_path / "run" / "state.sqlite", "run")
    held = database.latest().round  # more than were told of, perhaps
    database.close()
    run.settings = made(FedganSettings, SMALL | {"rounds": held + 1})
    run(resume=True)
    assert len(run.rounds()) == held + 1
    assert same(run.weights(), simulated(rounds=held + 1))


def test_a_server_that_sees_only_the_sum_learns_the_same(tmp_path, simulated):
    run = Run(tmp_path / "run", secure_aggregation=True, fraction=1.0, rounds=1)
    run()
    assert [sorted(event["took_part"]) for event in run.rounds()] == [[0, 1, 2]]
    plain, hidden = simulated(fraction=1.0, rounds=1), run.weights()
    for name, tensor in plain.items():
        torch.testing.assert_close(hidden[name], tensor, atol=1e-7, rtol=1e-6)
    assert hidden["layers.0.num_batches_tracked"] == plain["layers.0.num_batches_tracked"]


@pytest.mark.heavy
def test_a_sum_bears_that_a_device_is_lost(tmp_path):
    run = Run(
        tmp_path / "run", secure_aggregation=True, devices=4, fraction=1.0, rounds=MANY,
        round_timeout_s=8.0,
    )  # fmt: skip
    run.until(
        (after(1), lambda: run.signal(signal.SIGKILL, "device-2")),
        (lambda event: set(event["took_part"]) == {0, 1, 3}, enough),
    )
    assert run.lost() == ["device-2"]


@pytest.mark.heavy
def test_devices_stop_when_their_privacy_is_spent_and_their_accounts_outlive_the_run(tmp_path):
    private = {
        "gan": "lsgan(width=0.125, group_norm=True)", "fraction": 1.0, "dp_epsilon": 5.0,
        "dp_noise": 0.7, "dp_delta": 1e-4, "local_steps": 4, "batch": 32,
    }  # fmt: skip
    run = Run(tmp_path / "run", rounds=MANY, **private)
    run.until((after(1), enough))
    kept = sorted((tmp_path / "run" / "accounts").glob("device-*.json"))
    assert len(kept) == 3
    run(resume=True)
    rounds = run.rounds()
    told = [event["epsilon"] for event in rounds if event.get("epsilon")]
    for device in {name for each in told for name in each}:  # some end before the others
        spent = [each[device] for each in told if device in each]
        assert spent == sorted(spent)
        assert spent[0] < spent[-1] <= 5.0
    assert sorted(device for event in rounds for device in event.get("spent", ())) == [0, 1, 2]
    assert run.events[-1]["event"] == "done"
    assert "privacy budget" in run.events[-1]["note"]


def test_what_processes_cannot_do_is_refused_before_anything_is_written(tmp_path):
    for changes, told in (
        ({"devices": 17}, "--simulate, or take up to 16"),
        ({"gar": "median", "f": 1, "attack": "reverse", "fraction": 1.0}, "Add --simulate"),
        ({"secure_aggregation": True}, "The sum of 2 devices a round is no secret"),
        ({"secure_aggregation": True, "gar": "median"}, "Leave one of the two out"),
    ):
        with pytest.raises(ConfigError, match=told):
            Run(tmp_path / "run", **changes)()
    assert not (tmp_path / "run").exists()


def test_a_state_that_is_there_is_not_written_over(tmp_path):
    where = str(tmp_path / "kept.sqlite")
    Run(tmp_path / "run", state=where, rounds=1)()
    (tmp_path / "run").rename(tmp_path / "before")
    with pytest.raises(ConfigError, match="holds a training named run already"):
        Run(tmp_path / "run", state=where, rounds=1)()
