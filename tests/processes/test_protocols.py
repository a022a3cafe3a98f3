"""GuanYu and LiuBei as real processes that pull over gRPC, some of them lying."""

import pytest

from garfield.apps.settings import Settings
from garfield.launch.processes import Fault, Processes
from garfield.launch.training import roster_of
from garfield.report.run_history import read_history
from garfield.report.summary import summarise

BASE = Settings.of(
    model="digits_mlp", data="digits", steps=40, evaluate_every=0, timeout_s=5.0, give_up_s=60.0
)


def run(settings, *faults, by="memory"):
    events = []
    with Processes(settings, by=by) as nodes:
        nodes.start()
        nodes.run(events.append, faults)
    return events


@pytest.mark.heavy
def test_guanyu_learns_with_liars_on_both_sides_and_nobody_waits_for_a_dead_worker():
    settings = BASE.updated(
        app="guanyu", workers=9, byzantine_workers=1, f_workers=2, worker_attack="equivocate",
        servers=6, byzantine_servers=1, server_attack="reverse",
    )  # fmt: skip
    events = run(settings, Fault("worker-0", 5))
    finished = {e["node"]: e for e in events if e["event"] == "step" and e["step"] == 40}
    assert set(settings.honest_servers) <= set(finished)
    assert finished["server-0"]["accuracy"] > 0.8
    assert finished["server-0"]["gradients"] == 7  # n − f, whoever they are


@pytest.mark.heavy
@pytest.mark.slow
def test_liubei_learns_over_tls_with_liars_on_both_sides_and_reports_what_its_filters_did():
    settings = BASE.updated(
        app="liubei", workers=7, byzantine_workers=1, worker_attack="reverse", servers=4,
        byzantine_servers=1, server_attack="random", learning_rate=0.5, gather_every=4,
    )  # fmt: skip
    summary = summarise(read_history(run(settings, by="tls"), roster_of(settings)))
    assert summary["steps"] == 40
    assert summary["accuracy"] > 0.8
    filters = summary["filters"]
    assert filters["lies_rejected"] == 1.0
    assert filters["models"]["server-3"]["refused"] > 0
    assert filters["false_rejections"] < 0.6
