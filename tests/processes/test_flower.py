"""Rules in a server of Flower's, with real processes of it, three of which lie."""

import json
import subprocess

import numpy as np
import pytest

from tests import flower_federation

pytestmark = pytest.mark.heavy

EXAMPLE = flower_federation.ROOT / "examples" / "10-flower"
LIES = {1: "nan", 2: "shape", 4: "examples"}
TRUTH = np.array([2.0, -1.0, 0.5])


def test_a_superlink_with_supernodes_that_lie_learns(tmp_path):
    nodes = [f'number={i} lie="{LIES.get(i, "")}"' for i in range(7)]
    report = tmp_path / "report.json"
    with flower_federation.federation(tmp_path, nodes) as run:
        done = run(EXAMPLE, gar="median", nodes=7, rounds=1, report=str(report))
    log = done.stdout + done.stderr + (tmp_path / "log.txt").read_text()
    assert report.exists(), log
    found = json.loads(report.read_text())
    assert np.abs(np.array(found["weights"]) - TRUTH).max() < 0.5
    misfit, nan = sorted(found["excluded"].values())
    assert misfit.startswith("misfit: at ['weights'] shape (7, 7) where row ")
    assert nan == "non-finite"
    first = found["metrics"]["1"]
    assert sorted(first["excluded-nodes"]) == sorted(map(int, found["excluded"]))
    assert first["silent-nodes"] == 0
    assert first["loss"] < 1


def test_a_server_of_the_older_kind_names_who_lied_and_believes_no_number_of_examples(tmp_path):
    python, env = flower_federation.python(), flower_federation.environment(tmp_path)
    [port] = flower_federation.free_ports(1)
    report = tmp_path / "report.json"
    processes = []

    def start(*words):
        with (tmp_path / f"{words[0]}-{len(processes)}.txt").open("w") as log:
            command = [python, "-m", "tests.flower_by_fit", *map(str, words)]
            processes.append(
                subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
            )

    try:
        start("server", port, 9, report)
        flower_federation.wait_for_port(port)
        for i in range(9):
            start("client", port, i, LIES.get(i, ""))
        processes[0].wait(flower_federation.PATIENCE_S)
    finally:
        flower_federation.end(processes)
    assert report.exists(), (tmp_path / "server-0.txt").read_text()
    found = json.loads(report.read_text())
    for number, seen in enumerate(found["rounds"], 1):
        left = TRUTH * 0.5**number  # honest clients go half of the way
        np.testing.assert_allclose(seen["weights"], TRUTH - left, atol=0.05)
        why = list(seen["excluded"].values())
        assert sum(reason == "non-finite" for reason in why) == 1
        assert sum("shape (7, 7)" in reason for reason in why) == 1
        assert seen["metrics"]["loss"] == 0.5
        assert "shape (7, 7)" in seen["metrics"]["excluded"]
    assert len(found["rounds"]) == 3
    assert max(found["losses"]) < 2  # though one client claims 1e9 of 1e9 examples
