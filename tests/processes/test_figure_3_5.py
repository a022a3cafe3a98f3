"""Figure 3.5 in small: real processes and all of Fashion-MNIST, one liar among the workers and
one among the servers, who reply at random or with the truth reversed and a hundred times as long.

Averaging, with one server or with three, learns nothing; Multi-Krum with the median of the
servers' models learns as if nobody lied.
"""

import pytest

from garfield.apps.settings import Settings
from garfield.launch.processes import run_processes
from tests.full_data import fashion

pytest.importorskip("torch")
pytest.importorskip("grpc")
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]  # on two idle cores, two minutes in all

BASE = Settings.of(
    model="mnist_cnn", data="fashion", workers=11, steps=100, batch=16, evaluate_every=0,
    timeout_s=60.0, give_up_s=120.0,
)  # fmt: skip
THREE_SERVERS = {"servers": 3, "byzantine_workers": 1, "byzantine_servers": 1}
MSMW = {"app": "msmw", "gar": "multi-krum", "model_gar": "median", **THREE_SERVERS}
ATTACKS = ("random", "reverse")
GUESSING = 0.1
LEARNT = 0.7


@pytest.fixture(scope="module")
def accuracy():
    """Of the first server at the end of a run, on all 10,000 test images."""
    base = BASE.updated(data_dir=str(fashion()))

    def run(attack, **changes):
        events = []
        lies = {"worker_attack": attack, "server_attack": attack}
        run_processes(base.updated(**changes, **lies), events.append)
        mine = [event for event in events if event.get("node") == "server-0"]
        return [event["accuracy"] for event in mine if "accuracy" in event][-1]

    return run


@pytest.fixture(scope="module")
def unattacked(accuracy):
    return accuracy("none", **MSMW)


@pytest.mark.parametrize("attack", ATTACKS)
def test_one_server_that_averages_fails_to_learn(accuracy, attack):
    assert accuracy(attack, app="vanilla", byzantine_workers=1) < 2 * GUESSING


@pytest.mark.parametrize("attack", ATTACKS)
def test_replicated_servers_that_average_fail_to_learn(accuracy, attack):
    assert accuracy(attack, app="crash-tolerant", **THREE_SERVERS) < 2 * GUESSING


@pytest.mark.parametrize("attack", ATTACKS)
def test_robust_servers_learn_as_if_nobody_lied(accuracy, unattacked, attack):
    assert unattacked > LEARNT
    assert accuracy(attack, **MSMW) > unattacked - 0.02
