"""Decisions recorded with their snapshots, taken again, and taken without being followed."""

import json

import pytest
from hypothesis import given, settings

from garfield.core.errors import InputError
from garfield.core.files import as_json
from garfield.elastic.policy import Job, JobRequest, Measurement, parse
from garfield.elastic.policy.decision_log import as_event, decision_of, replayed, snapshot_of
from garfield.elastic.policy.dry_run import DryRun
from garfield.elastic.policy.snapshot import on_one_node
from garfield.runs.run_directory import RunDirectory
from tests.command import invoke
from tests.elastic_snapshots import snapshots


def one_job():
    job = Job("a", JobRequest(), 0).given(2, 64)
    return on_one_node(64, (job.measured(Measurement(2, 64, 100.0, 0.5, 0.2)),), at_s=240.0)


def written(path, policy="era"):
    snapshot = one_job()
    with RunDirectory(path) as directory:
        directory.open({})
        directory.record({"event": "arrived", "job": "a"})
        directory.record(as_event(policy, "decide", snapshot, parse(policy).decide(snapshot)))
    return path


@settings(max_examples=30)
@given(snapshots())
def test_a_decision_survives_its_line_of_json_to_the_last_bit(snapshot):
    decision = parse("era").decide(snapshot)
    line = json.loads(as_json(as_event("era", "decide", snapshot, decision)))
    assert snapshot_of(line["snapshot"]) == snapshot
    assert decision_of(line["decision"]) == decision
    assert [each.agrees for each in replayed([line])] == [True]


def test_the_same_policy_decides_the_same_again(tmp_path):
    done = invoke(["elastic", "replay", written(tmp_path / "run")])
    assert done.exit_code == 0
    assert "1 of 1 decisions are the same" in done.stdout


def test_another_policy_is_shown_beside_the_one_that_decided(tmp_path):
    run = written(tmp_path / "run")
    done = invoke(["elastic", "replay", run, "--policy", "autoscaler"])
    assert (done.exit_code, "a 16×128 → 6×64" in done.stdout) == (0, True)
    told = json.loads(invoke(["elastic", "replay", run, "--policy", "static", "--json"]).stdout)
    assert told[0]["differing"]["a"]["now"]["workers"] == 2


def test_a_recorded_decision_that_its_policy_does_not_take_again_fails(tmp_path):
    run = written(tmp_path / "run")
    lines = (run / "metrics.jsonl").read_text().replace('"workers": 16', '"workers": 15')
    (run / "metrics.jsonl").write_text(lines)
    done = invoke(["elastic", "replay", run])
    assert done.exit_code == 1
    assert "1 decisions differ" in done.stderr


def test_what_holds_no_decisions_is_refused(tmp_path):
    done = invoke(["elastic", "replay", tmp_path])
    assert (done.exit_code, "holds no recorded decisions" in done.stderr) == (2, True)
    for broken in ({"jobs": 3}, {"nodes": [], "job": []}, {"nodes": []}, 7):
        with pytest.raises(InputError, match=r"no recorded|incomplete"):
            snapshot_of(broken)
    assert invoke(["elastic", "replay", tmp_path, "--policy", "erra"]).exit_code == 2


def test_a_dry_run_decides_tells_and_changes_nothing():
    told = []
    dry = DryRun(parse("era"), lambda *each: told.append(each))
    snapshot = one_job()
    assert dry.decide(snapshot)["a"].workers == 2
    waiting = on_one_node(4, (Job("b", JobRequest(), 0),))
    assert dry.admit(waiting)["b"].workers == 0
    (asked, seen, decision), (second, _, starts) = told
    assert (asked, seen, decision["a"].workers) == ("decide", snapshot, 16)
    assert (second, starts["b"].workers) == ("admit", 2)
