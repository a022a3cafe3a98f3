"""What events add up to."""

import io
import json
from functools import partial

import pytest
from rich.console import Console

from garfield.core.silence import NOT_FINITE, NOT_NEEDED, Reason, Silence
from garfield.report import plots
from garfield.report.live import Status, counted, line
from garfield.report.run_history import Roster, read_history, standing
from garfield.report.summary import summarise
from garfield.report.summary_table import summary_table
from garfield.runs.run_directory import RunDirectory

ROSTER = Roster(["server-0", "server-1"], ["worker-0", "worker-1", "worker-2"], ["worker-2"])


def fault(reason, detail, times=1):
    """As nodes tell it."""
    return {reason.value: {"times": times, "detail": detail}}


LATE = partial(fault, Reason.NO_ANSWER, "no answer in 10 s")
NAN = partial(fault, Reason.NOT_FINITE, "not finite")


def step(number, time_s, node="server-0", **more):
    sums = {"communication_s": 0.6 * time_s, "aggregation_s": 0.1 * time_s, "gradients": 3}
    traffic = {"bytes_sent": 100 * number, "bytes_received": 200 * number}
    trust = {"trusted": ["worker-0", "worker-1"], "set_aside": {}, "silent": {}}
    return {"event": "step", "node": node, "step": number, "time_s": time_s} | (
        sums | traffic | trust | more
    )


def worker(name, computed, compute_s):
    traffic = {"bytes_sent": 10, "bytes_received": 10}
    told = {"event": "worker", "node": name, "step": computed, "computed": computed}
    return {**told, "compute_s": compute_s, **traffic}


def test_rates_breakdown_and_traffic():
    events = [step(1, 1.0), step(2, 2.0), step(3, 3.0), step(4, 4.0, accuracy=0.5, loss=1.5)]
    events += [worker("worker-0", 4, 0.4), worker("worker-1", 4, 1.2)]
    found = summarise(read_history(events, ROSTER))
    assert (found["steps"], found["accuracy"], found["loss"]) == (4, 0.5, 1.5)
    assert found["updates_per_s"] == 1.0
    assert found["batches_per_s"] == 3.0
    assert found["breakdown"]["compute_s"] == pytest.approx(1.6 / 8)
    assert found["breakdown"]["communication_s"] == pytest.approx(0.6 - 0.2)
    assert found["breakdown"]["aggregation_s"] == pytest.approx(0.1)
    assert (found["bytes_sent"], found["bytes_received"]) == (420, 820)


def test_a_resumed_run_adds_up_and_forgets_what_was_done_again():
    first = [step(1, 1.0), step(2, 2.0, accuracy=0.2), step(3, 9.0, accuracy=0.9)]
    again = [{"event": "resumed", "step": 2}, step(3, 1.0, accuracy=0.3), step(4, 2.0)]
    history = read_history([*first, *again], ROSTER)
    assert [(p.step, p.time_s, p.accuracy) for p in history.curve] == [(2, 2.0, 0.2), (3, 3.0, 0.3)]
    found = summarise(history)
    assert found["time_s"] == 4.0
    assert found["updates_per_s"] == 1.0
    assert (found["steps"], found["resumed_at"]) == (4, [2])
    assert found["bytes_sent"] == 200 + 400


def test_left_out_silent_and_lying_peers_are_told_apart():
    faults = {
        "worker-1": LATE(2),
        "worker-2": LATE(4) | NAN(3),
        "server-1": fault(Reason.GONE, "gone, now 9"),
    }
    events = [step(n, n, faults=faults) for n in (1, 2, 3)]
    found = summarise(read_history(events, ROSTER))
    assert found["left_out"] == {"worker-2": 3}
    lied = NAN(3) | LATE(4)
    told_by = {"witnesses": ["server-0"]}
    assert found["silent"] == {
        "worker-1": {"kind": "silent", "times": 2, "reason": "no answer",
                     "detail": "no answer in 10 s", "reasons": LATE(2), **told_by},
    }  # fmt: skip
    assert found["liars"] == {
        "worker-2": {"kind": "lied", "times": 7, "reason": "not finite", "detail": "not finite",
                     "reasons": lied, **told_by},
    }  # fmt: skip
    assert list(found["liars"]["worker-2"]["reasons"]) == list(lied)  # the proof comes first


def test_one_honest_witness_with_proof_is_enough():
    slow = {"worker-1": LATE(9)}
    proof = {"worker-1": fault(Reason.WRONG_SIZE, "sent 3 of 40 bytes") | LATE(2)}
    events = [step(1, 1.0, faults=slow), step(1, 1.0, "server-1", faults=proof)]
    liar = summarise(read_history(events, ROSTER))["liars"]["worker-1"]
    assert (liar["kind"], liar["times"]) == ("lied", 10)
    assert liar["witnesses"] == ["server-0", "server-1"]


def test_counts_of_a_resumed_run_add_up():
    faults = {"worker-1": NAN(2)}
    events = [step(1, 1.0, faults=faults), {"event": "resumed", "step": 1}]
    events += [step(2, 1.0, faults=faults), step(3, 2.0, faults=faults)]
    assert summarise(read_history(events, ROSTER))["liars"]["worker-1"]["times"] == 4


@pytest.mark.parametrize(
    ("reason", "detail", "proof"),
    [
        (Reason.WRONG_SIZE, "sent 4 of 40 bytes", True),  # and said that this was all
        (Reason.TOO_SLOW, "sent 4 of 40 bytes in 10 s", False),  # a slow link does that
        (Reason.TOO_SLOW, "sent 4 of 40 datagrams in 10 s", False),
        (Reason.STALLED, "stalled, sent 0 of 40 datagrams", False),
        (Reason.GARBAGE, "answered in a way that nobody asked for", True),
        (Reason.DISCONNECTED, "connection lost, sent 4 of 40 bytes", False),
        (Reason.STALLED, "stalled for 5 s, sent 0 of 40 bytes", False),
        (Reason.WRONG_STEP, "sent step 3.0 instead of 4.0", True),
        (Reason.WRONG_CERTIFICATE, "its certificate names another", False),
        (Reason.FOREIGN_CERTIFICATE, "its certificate is not from our authority", False),
        (Reason.EXPIRED_CERTIFICATE, "its certificate has expired", False),
        (Reason.NO_CERTIFICATE, "what listens there does not speak TLS", False),
        (Reason.TOO_SLOW, "too slow", False),
    ],
)
def test_only_what_no_honest_node_does_is_proof(reason, detail, proof):
    events = [step(1, 1.0, faults={"worker-1": fault(reason, detail)})]
    found = summarise(read_history(events, ROSTER))
    assert ("worker-1" in found["liars"], "worker-1" in found["silent"]) == (proof, not proof)


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("detail", ["", "not finite", "sent 4 of 40 bytes", "not needed", "gone"])
def test_rewording_a_detail_changes_nobody_s_standing_and_nobody_s_blame(reason, detail):
    faults = {"worker-1": fault(reason, detail)}
    silent = {"worker-1": Silence(reason, detail).to_json()}
    event = step(1, 1.0, faults=faults, silent=silent, trusted=["worker-0"])
    found = summarise(read_history([event], ROSTER))
    blamed = found["liars"] if reason.proof else found["silent"]
    assert found["liars"].keys() | found["silent"].keys() == blamed.keys()
    assert [about["detail"] for about in blamed.values()] == [detail] * (not reason.blameless)
    expected = "not needed" if reason is Reason.NOT_NEEDED else "silent"
    assert standing(event, "worker-1") == expected


def test_no_reason_is_both_proof_and_blameless_and_each_survives_the_disk():
    for reason in Reason:
        assert not (reason.proof and reason.blameless)
        silence = Silence(reason, "words")
        told = json.loads(json.dumps(silence.to_json()))
        assert (Reason(told["reason"]), told["detail"]) == (reason, silence.detail)


def test_gradients_of_a_model_that_diverged_prove_nothing():
    faults = {"worker-0": NAN(1)}
    diverged = {"event": "diverged", "node": "server-0", "step": 2, "error": "diverged"}
    events = [step(1, 1.0, faults=faults)]
    assert summarise(read_history(events, ROSTER))["liars"]["worker-0"]["kind"] == "lied"
    found = summarise(read_history([*events, diverged], ROSTER))
    assert (found["liars"].keys(), found["silent"].keys()) == (set(), {"worker-0"})


def test_what_liars_and_strangers_say_of_others_is_not_believed():
    slander = {"faults": {"worker-0": NAN(9)}}
    events = [step(1, 1.0), {**worker("worker-2", 1, 0.1), **slander}]
    events += [{**worker("worker-9", 1, 0.1), **slander}]
    found = summarise(read_history(events, ROSTER))
    assert (found["liars"], found["silent"]) == ({}, {})


def test_the_server_that_came_farthest_tells_the_story():
    events = [step(1, 1.0, accuracy=0.1), step(1, 1.0, "server-1"), step(2, 2.0, "server-1")]
    found = summarise(read_history([*events, step(3, 3.0, "server-1", accuracy=0.7)], ROSTER))
    assert (found["steps"], found["accuracy"]) == (3, 0.7)


def test_a_run_that_never_took_a_step_can_be_summed_up():
    found = summarise(read_history([], ROSTER))
    assert (found["steps"], found["accuracy"], found["updates_per_s"]) == (0, None, None)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"trusted": ["worker-0"]}, "trusted"),
        ({"trusted": ["worker-1"]}, "left out"),
        ({"trusted": None}, "heard"),
        ({"trusted": None, "set_aside": {"worker-0": "too large"}}, "left out"),
        ({"trusted": None, "silent": {"worker-0": NOT_FINITE.to_json()}}, "silent"),
        ({"trusted": [], "silent": {"worker-0": NOT_NEEDED.to_json()}}, "not needed"),
    ],
)
def test_the_standing_of_a_worker(event, expected):
    assert standing(event, "worker-0") == expected


def test_metrics_are_valid_json_whatever_the_loss(tmp_path):
    with RunDirectory(tmp_path / "x") as directory:
        directory.open({"steps": 3, "data_dir": None})
        directory.record({"event": "step", "loss": float("nan")})
    text = directory.metrics.read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"event": "step", "loss": None}
    directory.metrics.write_text(text + '{"event": "st')  # the machine went down
    assert len(directory.events()) == 1


@pytest.mark.slow
def test_the_pictures_are_drawn_for_long_runs_too(tmp_path):
    events = [step(n, n / 10, accuracy=n / 1000) for n in range(1, 700)]
    drawn = plots.draw_all(read_history(events, ROSTER), "a run", tmp_path)
    assert [path.name for path in drawn] == ["accuracy.png", "breakdown.png", "trust.png"]
    assert all(path.stat().st_size > 5_000 for path in drawn)


def test_nothing_is_drawn_of_nothing(tmp_path):
    assert plots.draw_all(read_history([], ROSTER), "a run", tmp_path) == []


def test_the_line_of_an_evaluation():
    status = Status(ROSTER, total=10)
    assert not status.take(step(1, 1.0))
    away = Silence(Reason.UNREACHABLE, "connection refused")
    silent = {"trusted": ["worker-0"], "silent": {"worker-1": away.to_json()}}
    assert status.take(step(2, 1.5, accuracy=0.25, loss=2.0, **silent))
    assert line("run", status) == (
        "run: step 2/10, accuracy 25.0 %, loss 2, 2.0 updates/s, left out worker-2 2× of 2, "
        "silent worker-1"
    )
    assert status.eta_s == 4.0
    status.take({"event": "failed", "node": "worker-1", "error": "worker-1 was ended by signal 9."})
    assert status.warnings == ["worker-1 was ended by signal 9."]


def test_many_names_are_cut_short():
    assert counted({"a": 3, "b": 2, "c": 1}, 4, most=2) == "a 3×, b 2× and 1 others of 4"


def test_the_final_table_names_liars_with_counts_and_reasons():
    slow = fault(Reason.TOO_SLOW, "too slow", 2)
    faults = {"worker-1": NAN(3) | LATE(4), "worker-0": slow}
    summary = summarise(read_history([step(1, 1.0, faults=faults)], ROSTER))
    out = Console(width=120, file=io.StringIO())
    out.print(summary_table({**summary, "total_steps": 1, "excluded": ["worker-9"]}))
    rows = {row.split()[0]: row for row in out.file.getvalue().splitlines() if row.strip()}
    assert "worker-1 7× (3× not finite, 4× no answer in 10 s)" in rows["lied"]
    assert "worker-0 2× (too slow)" in rows["silent"]
    assert "worker-9" in rows["excluded"]


def test_what_another_version_recorded_is_summed_up_and_blames_nobody():
    """Before reasons had names, faults were told in sentences: a long run may have begun then."""
    told = {"worker-1": {"sent 12 of 40 bytes": 3}}
    silent = {"worker-1": "no answer in 10 s"}
    event = step(1, 1.0, faults=told, silent=silent, trusted=["worker-0"])
    assert summarise(read_history([event], ROSTER))["liars"] == {}
    assert standing(event, "worker-1") == "silent"
