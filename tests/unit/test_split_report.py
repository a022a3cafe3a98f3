"""What is told of a split fine-tuning: summary, tables, pictures, and the words of commands."""

import json
from math import isnan

import pytest
from rich.console import Console

from garfield.cli.app import run
from garfield.report.split_comparison import comparison_sentences, comparison_table
from garfield.report.split_plots import draw_comparison, draw_split
from garfield.report.split_summary import SplitHistory, size, split_summary, split_table

BEGAN = {"event": "began", "step": 0, "model": "resnet18", "freeze": 11, "stored_bytes": 150_000.0}


def batch(step, epoch, split=6, received=1000, **more):
    return {
        "event": "batch", "step": step, "epoch": epoch, "split": split, "samples": 10, "right": 5,
        "loss": 1.0 / step, "wait_s": 0.5, "compute_s": 1.0, "received_bytes": received,
        "peak_bytes": 300, "server_peak_bytes": 70, **more,
    }  # fmt: skip


def done(**more):
    return {"event": "done", "step": 4, "uploaded_bytes": 50, "retries": 1, "cache_hits": 0, **more}


RUN = [
    BEGAN, batch(1, 0), batch(2, 0), batch(3, 1, split=12, received=100),
    batch(4, 1, split=12, received=100), done(),
]  # fmt: skip


def printed(table):
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    return console.export_text()


def test_a_summary_adds_up_what_the_batches_told():
    summary = split_summary(RUN)
    assert summary["time_s"] == 6.0
    assert summary["received_bytes"] == 2200
    assert summary["bytes_per_iteration"] == 550
    assert summary["bytes_per_sample"] == 55
    assert summary["split"] == 12
    assert [(each["split"], each["received_bytes"]) for each in summary["epochs"]] == [
        (6, 2000), (12, 200),
    ]  # fmt: skip
    assert (summary["accuracy"], summary["accuracy_of"][:8]) == (0.5, "training")
    assert (summary["peak_memory_client_bytes"], summary["peak_memory_server_bytes"]) == (300, 70)
    assert (summary["uploaded_bytes"], summary["retries"]) == (50, 1)


def test_what_was_held_out_decides_accuracy():
    held = {"event": "evaluated", "step": 4, "epoch": 1, "accuracy": 0.8}
    assert split_summary([*RUN, held])["accuracy"] == 0.8


def test_batches_after_the_step_that_was_resumed_from_were_lost():
    resumed = {"event": "resumed", "step": 2}
    events = [*RUN[:5], resumed, batch(3, 1, received=7), batch(4, 1, received=7), done()]
    history = SplitHistory.of(events)
    assert [each["step"] for each in history.batches] == [1, 2, 3, 4]
    assert split_summary(events)["received_bytes"] == 2014


def test_a_run_without_batches_has_a_summary_too():
    summary = split_summary([BEGAN])
    assert summary["iterations"] == 0
    assert summary["accuracy"] is None
    printed(split_table(summary))


def test_the_table_says_where_layers_ran_and_what_crossed_the_link():
    text = printed(split_table(split_summary(RUN)))
    assert "12 layers at the server" in text
    assert "33% of it waiting" in text
    assert "2.2 kB, 550 B an iteration" in text
    plain = [BEGAN, batch(1, 0, split=0), done()]
    assert "every layer ran here" in printed(split_table(split_summary(plain)))


def test_a_training_that_diverged_has_a_summary_too(tmp_path):
    """Its last loss was written as null."""
    events = [BEGAN, batch(1, 0), {**batch(2, 0), "loss": None}]
    summary = split_summary(events)
    assert isnan(summary["loss"])
    assert "nan" in printed(split_table(summary))
    assert draw_split(events, "resnet18", tmp_path)


def test_a_training_beside_the_store_is_told_as_one():
    events = [
        {**BEGAN, "all_in_store": True},
        batch(1, 0, split=20, server_peak_bytes=0),
        done(result=".garfield/results/ab", server_peak_bytes=900),
    ]
    summary = split_summary(events)
    assert summary["all_in_store"]
    assert summary["result"] == ".garfield/results/ab"
    assert summary["peak_memory_server_bytes"] == 900
    text = printed(split_table(summary))
    assert "all layers ran, and were trained, at the server" in text
    assert ".garfield/results/ab in the store" in text
    assert "waiting" not in text
    assert not split_summary(RUN)["all_in_store"]


def test_a_training_beside_the_store_has_no_picture_of_parts_it_has_not(tmp_path):
    events = [{**BEGAN, "all_in_store": True}, batch(1, 0), batch(2, 0), done()]
    assert [path.name for path in draw_split(events, "alexnet", tmp_path)] == ["learning.png"]


def test_pictures_are_drawn(tmp_path):
    drawn = draw_split(RUN, "resnet18", tmp_path)
    assert [path.name for path in drawn] == ["learning.png", "transfer.png"]
    assert draw_split([BEGAN], "nothing", tmp_path) == []
    draw_comparison({"plain": split_summary(RUN)}, "one", tmp_path / "comparison.png")
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in tmp_path.glob("*.png"))


def test_a_comparison_tells_also_when_the_split_lost():
    base = split_summary(RUN)
    runs = {
        "plain: images": base,
        "quick": base | {"time_s": 2.0, "received_bytes": 220},
        "slow": base | {"time_s": 12.0, "received_bytes": 4400},
    }
    assert "plain: images" in printed(comparison_table(runs))
    assert comparison_sentences(runs) == [
        "quick: 3.0 times faster than plain, with 10 times fewer bytes.",
        "slow: 2.0 times slower than plain, with 2.0 times more bytes.",
    ]


def test_sizes_are_said_in_words():
    assert [size(n) for n in (0, 999, 1000, 5.12e6, 3e9)] == [
        "0 B", "999 B", "1 kB", "5.12 MB", "3 GB",
    ]  # fmt: skip


def planned(capsys, *words):
    assert run(["split", "plan", "--no-times", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_a_plan_shows_every_split_and_marks_the_chosen(capsys, tmp_path):
    picture = tmp_path / "plan.png"
    words = ("--model", "alexnet", "--bandwidth", "1Gbps", "--batch", "2000")
    text = planned(capsys, *words, "--picture", str(picture))
    rows = [line for line in text.splitlines() if "features." in line or "classifier." in line]
    assert len(rows) == 20
    assert [line.split()[1:3] for line in rows if line.startswith("→")] == [["13", "features.12"]]
    assert "4.1 times fewer bytes" in text
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_a_plan_says_where_not_to_use_it(capsys):
    text = planned(capsys, "--model", "resnet18", "--bandwidth", "150Mbps", "--stored-as", "jpeg")
    assert "Do not use this here: no layer is smaller than the stored input" in text


def test_a_plan_as_json_holds_costs(capsys):
    words = ("--model", "alexnet", "--bandwidth", "50Mbps", "--batch", "1000", "--json")
    found = json.loads(planned(capsys, *words, "--samples", "1000", "--egress", "100"))
    assert found["split"] == 17
    by_split = {row["split"]: row for row in found["rows"]}
    assert by_split[0]["epoch_cost"] == pytest.approx(100 * 1000 * 3 * 224 * 224 / 1e9)
    assert by_split[0]["bytes_per_iteration"] / by_split[17]["bytes_per_iteration"] > 9


@pytest.mark.parametrize("name", ["train", "serve", "put", "plan", "demo"])
def test_every_command_has_help(name, capsys):
    assert run(["split", name, "--help"]) == 0
    assert f"garfield split {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train"], "Give --data"),
        (["train", "--data", "file:///nowhere", "--batch", "0"], "batch must be at least 1"),
        (["train", "--data", "ftp://x"], "not a kind of store"),
        (["train", "--optimizer", "lion"], "sgd or adam"),
        (["train", "--resume", "/nowhere"], "holds no run: it has no config.toml"),
        (["train", "--dta", "x"], "--dta"),
        (["put", "/nowhere"], "--to"),
        (["serve", "--store", "ftp://x"], "swift://, s3:// or file://"),
        (["demo", "--link", "fast"], "1Gbps"),
        (["plan", "--model", "alexnet"], "--bandwidth"),
        (["plan", "--bandwidth", "1Gbps", "--model", "alexnt"], "Did you mean alexnet"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["split", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
