"""A local cluster: daemons, shims and workers that are real processes, with a light script."""

import os
import signal
import sqlite3

import pytest

from garfield.elastic.policy.decision_log import replayed
from tests.elastic_local_cluster import LocalCluster, is_running


@pytest.mark.slow
def test_a_waiting_job_makes_a_running_one_shrink_and_its_end_lets_it_grow(tmp_path):
    with LocalCluster(tmp_path, slots=4) as cluster:
        cluster.submit("first", max_workers=4)
        cluster.wait_for("first", workers=4, processes=4)
        enough = tmp_path / "enough"
        cluster.submit("second", "--until-file", enough, max_workers=4, start_workers=4)
        cluster.wait_for("second", phase="running")
        assert cluster.job("first").workers < 4
        enough.touch()
        cluster.wait_for("second", phase="finished")
        cluster.wait_for("first", workers=4, processes=4)
        assert cluster.job("first").rescalings >= 3
        taken = slots_over_time(cluster.events("workers"))
        assert max(taken) <= 4
        decisions = replayed(cluster.events("decision"))
        assert decisions
        assert all(each.agrees for each in decisions)


@pytest.mark.slow
def test_jobs_train_on_while_the_daemon_is_dead_and_are_adopted_by_the_next(tmp_path):
    with LocalCluster(tmp_path, slots=3) as cluster:
        cluster.submit("kept", max_workers=2)
        enough = tmp_path / "enough"
        cluster.submit("ends", "--until-file", enough, start_workers=1, max_workers=1)
        cluster.wait_for("kept", workers=2, processes=2)
        cluster.wait_for_steps("kept", 3)
        cluster.wait_for_steps("ends", 3)
        before = cluster.all_workers(0, 2)
        cluster.kill_daemon()
        assert "No daemon runs" in cluster.command("status").stdout
        cluster.wait_for_steps("kept", 20)
        enough.touch()
        cluster.wait(lambda: not cluster.workers(1), "the end of a job that nobody watches")
        cluster.submit("meanwhile", "--until", 5, start_workers=1, max_workers=1)
        cluster.up()
        cluster.wait_for("ends", phase="finished")
        cluster.wait_for("meanwhile", phase="finished")
        cluster.wait_for_steps("kept", 5)
        assert cluster.workers(0) == before
        assert cluster.job("kept").rescalings == 0


@pytest.mark.slow
def test_a_half_failed_job_goes_on_with_the_living_and_one_below_its_minimum_starts_again(tmp_path):
    with LocalCluster(tmp_path, "--policy", "static", slots=3) as cluster:
        cluster.submit("hit", min_workers=2, start_workers=3, max_workers=3)
        cluster.wait_for("hit", processes=3)
        cluster.wait_for_steps("hit", 10)
        victim = cluster.all_workers(0, 3)["w2"]
        os.kill(victim, signal.SIGKILL)
        cluster.wait_for("hit", workers=2, processes=2)
        assert "w2: was killed by signal 9" in cluster.job("hit").why
        assert sorted(cluster.all_workers(0, 2)) == ["w1", "w3"]
        cluster.wait_for_steps("hit", 5)
        os.kill(cluster.workers(0)["w1"], signal.SIGKILL)
        cluster.wait(lambda: "w4" in cluster.workers(0), "another start")
        cluster.wait_for("hit", workers=3, processes=3)
        assert "begins at step 0" not in cluster.log(0, "w4")


@pytest.mark.slow
def test_a_script_that_exits_at_once_is_given_up_and_others_are_not_held_up(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import sys\nprint('no such data')\nsys.exit(3)\n")
    with LocalCluster(tmp_path, slots=2) as cluster:
        cluster.submit("broken", script=broken, start_workers=2)
        cluster.submit("good", "--until", 10)
        cluster.wait_for("broken", phase="failed")
        assert "failed 3 times at step 0" in cluster.job("broken").why
        assert "exit code 3 (no such data)" in cluster.job("broken").why
        cluster.wait_for("good", phase="finished")
        assert "w1 | no such data" in cluster.command("logs", "broken").stdout


@pytest.mark.slow
def test_cancelled_jobs_end_also_those_that_do_not_listen(tmp_path):
    with LocalCluster(tmp_path, "--grace-s", "0.3", slots=2) as cluster:
        cluster.submit("deaf", "--deaf", start_workers=1, max_workers=1)
        cluster.submit("heeds", start_workers=1, max_workers=1)
        cluster.wait_for_steps("deaf", 3)
        cluster.wait_for_steps("heeds", 3)
        pids = cluster.pids()
        assert cluster.command("cancel", "deaf", "heeds").exit_code == 0
        cluster.wait(lambda: not any(map(is_running, pids)), "the end of all processes")
        cluster.wait_for("deaf", phase="cancelled", processes=0)
        cluster.wait_for("heeds", phase="cancelled", processes=0)
        again = cluster.command("cancel", "deaf")
        assert (again.exit_code, "cancelled already" in again.stderr) == (2, True)


@pytest.mark.slow
def test_down_keeps_jobs_that_go_on_from_their_checkpoints(tmp_path):
    with LocalCluster(tmp_path, slots=2) as cluster:
        cluster.submit("long")
        cluster.wait_for_steps("long", 20)
        pids = cluster.pids()
        assert len(pids) == 4
        done = cluster.command("down")
        assert "1 jobs are kept" in done.stdout
        assert not any(map(is_running, [*pids, *cluster.daemons]))
        reached = cluster.job("long")
        assert reached.phase == "suspended"
        cluster.up()
        cluster.wait_for("long", processes=2)
        cluster.wait_for_steps("long", 5)
        assert "begins at step 0" not in cluster.log(0, "w3")
        assert cluster.job("long").step > reached.step


@pytest.mark.heavy
def test_down_ends_workers_whose_daemon_was_killed(tmp_path):
    with LocalCluster(tmp_path, slots=2) as cluster:
        cluster.submit("long")
        cluster.wait_for_steps("long", 3)
        pids = cluster.pids()
        cluster.kill_daemon()
        assert "2 workers went on, and have ended" in cluster.command("down").stdout
        assert not any(map(is_running, pids))
        assert cluster.job("long").phase == "suspended"


@pytest.mark.slow
def test_a_second_daemon_is_refused_and_a_killed_shim_takes_its_worker_along(tmp_path):
    with LocalCluster(tmp_path, slots=2) as cluster:
        done = cluster.command("up")
        assert done.exit_code == 2
        assert "runs in" in done.stderr
        assert "garfield elastic down" in done.stderr
        cluster.submit("long", start_workers=1, max_workers=1)
        cluster.wait_for_steps("long", 3)
        shim, worker = cluster.pids()
        os.kill(shim, signal.SIGKILL)
        cluster.wait(lambda: not is_running(worker), "the worker's end")
        cluster.wait(lambda: "w2" in cluster.workers(0), "another start")


@pytest.mark.heavy
def test_an_error_after_the_training_s_end_is_told(tmp_path):
    with LocalCluster(tmp_path, slots=2) as cluster:
        cluster.submit("late", "--until", 5, "--code-at-end", 7)
        cluster.wait_for("late", phase="failed")
        assert "exit code 7" in cluster.job("late").why


@pytest.mark.heavy
def test_a_dry_run_starts_nothing_and_tells_what_it_would(tmp_path):
    with LocalCluster(tmp_path, "--dry-run", slots=2) as cluster:
        cluster.submit("waits")
        cluster.wait(lambda: len(cluster.events("decision")) >= 2, "decisions")
        assert cluster.job("waits").phase == "waiting"
        told = cluster.events("decision")[0]
        assert told["decision"]["shares"]["waits"]["workers"] == 2


@pytest.mark.heavy
def test_measurements_and_counts_survive_the_daemon(tmp_path):
    with LocalCluster(tmp_path, slots=2) as cluster:
        cluster.submit("long", max_workers=2, start_workers=1)
        cluster.wait_for("long", workers=2, processes=2)
        cluster.wait(lambda: cluster.job("long").throughput == 200.0, "a measurement")
        kept = last_snapshot(cluster, "long")
        cluster.kill_daemon()
        seen = len(cluster.events("decision"))
        cluster.up()
        cluster.wait(lambda: len(cluster.events("decision")) > seen + 1, "a round")
        now = last_snapshot(cluster, "long")
        assert now["rescalings"] == 1
        assert now["rounds"] > kept["rounds"]
        sizes = {(each["workers"], each["batch"]) for each in now["measurements"]}
        assert sizes == {(1, 64), (2, 64)}


@pytest.mark.heavy
def test_nobody_borrows_what_another_team_asks_back(tmp_path):
    with LocalCluster(tmp_path, "--guarantees", "red:2", slots=4) as cluster:
        cluster.submit("blue", team="blue", max_workers=4)
        cluster.wait_for("blue", workers=4)
        cluster.submit("red", team="red", start_workers=2, max_workers=2)
        cluster.wait_for("red", workers=2, processes=2)
        cluster.wait_for("blue", workers=2, processes=2)


@pytest.mark.heavy
def test_a_policy_of_the_user_s_own_that_fails_changes_nothing(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from garfield.elastic.policy import Policy, policy\n"
        "@policy('broken')\n"
        "class Broken(Policy):\n"
        "    def decide(self, snapshot):\n"
        "        raise ZeroDivisionError('of my own')\n"
    )
    with LocalCluster(tmp_path, "--policy", "broken", slots=2, load=mine) as cluster:
        cluster.submit("goes-on", "--until", 60)
        cluster.wait_for("goes-on", phase="finished")
        assert "of my own" in (cluster.path / "daemon.log").read_text()
        assert cluster.command("down").exit_code == 0
        assert 'policy = "broken"' in (cluster.path / "config.toml").read_text()


@pytest.mark.heavy
def test_a_database_that_cannot_be_written_stops_no_job_and_loses_none(tmp_path):
    with LocalCluster(tmp_path, slots=2) as cluster:
        cluster.submit("long")
        cluster.wait_for_steps("long", 5)
        blocker = sqlite3.connect(cluster.path / "cluster.sqlite", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        log = cluster.path / "daemon.log"
        cluster.wait(lambda: "Jobs go on as they are" in log.read_text(), "a warning")
        cluster.wait_for_steps("long", 5)
        blocker.close()
        cluster.submit("next", "--until", 5, start_workers=1)
        cluster.wait_for("next", phase="finished")
        assert cluster.status.daemon == cluster.daemons[0]


def slots_over_time(events):
    now, found = {}, []
    for event in events:
        now[event["number"]] = event["workers"]
        found.append(sum(now.values()))
    return found


def last_snapshot(cluster, name):
    snapshot = cluster.events("decision")[-1]["snapshot"]
    return next(job for job in snapshot["jobs"] if job["name"] == name)
