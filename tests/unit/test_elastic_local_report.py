"""What people see of a local cluster: the table of `status`, and the demonstration's picture."""

from io import StringIO

from rich.console import Console

from garfield.elastic.local.history import JobHistory, summary
from garfield.elastic.local.status import ClusterStatus, JobStatus
from garfield.report.elastic_slots import draw_slots, jobs_table
from garfield.report.elastic_status import status_table


def shown(what):
    out = StringIO()
    Console(file=out, width=160).print(what)
    return out.getvalue()


def job(**told):
    usual = {
        "name": "digits", "phase": "running", "team": "", "workers": 2, "processes": 2,
        "min_workers": 1, "max_workers": 4, "batch": 64, "step": 120, "epoch": 1,
        "throughput": 1234.5, "rescalings": 3, "queueing_s": 4.0, "jct_s": None, "age_s": 61.0,
        "why": "1 → 2 workers",
    }  # fmt: skip
    return JobStatus(**{**usual, **told})


def test_status_shows_each_job_and_who_is_on_the_way():
    told = shown(status_table(ClusterStatus("/c", 77, 4, 3, [job(), job(name="b", processes=1)])))
    assert "3 of 4 slots in use, daemon 77" in told
    first, second = told.splitlines()[-2:]
    assert [*first.split()][:6] == ["digits", "running", "2", "of", "1–4", "64"]
    assert "1,23" in first  # rounded samples a second
    assert "2 (1) of 1–4" in second


def test_status_without_a_daemon_says_so_and_waiting_jobs_have_no_workers():
    waiting = job(phase="waiting", workers=0, processes=0, throughput=None, step=0)
    told = shown(status_table(ClusterStatus("/c", None, 4, 0, [waiting])))
    assert "No daemon runs: jobs go on as they are." in told
    assert "garfield elastic up" in told
    assert told.splitlines()[-1].split()[:5] == ["digits", "waiting", "–", "64", "–"]


def test_the_demonstration_ends_with_a_table_and_a_picture(tmp_path):
    done = JobHistory("a", 5.0, [(6.0, 2), (30.0, 0)], 8.0, "finished", 30.0, 25.0, 1.0, 2)
    never = JobHistory("b", 7.0)
    table = shown(jobs_table({"era": summary([done, never])}))
    assert table.splitlines()[-1].split() == ["era", "25.0", "25.0", "1.0", "2.0", "1", "of", "2"]
    draw_slots({"era": [done, never], "static": []}, 4, tmp_path / "slots.png")
    assert (tmp_path / "slots.png").read_bytes().startswith(b"\x89PNG")
