"""docs/metrics.md names every event and field that runs write, and none that they do not."""

import json
import re
from pathlib import Path

import pytest

from garfield.cli.app import run
from garfield.runs.run_directory import RunDirectory

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
EVERY = {"event", "node"}
RARE = {"faults", "score", "metric", "larger_is_better"}
"""A worker tells of faults where servers lie; of a score, whose metric is not accuracy."""
TINY = ["train", "--simulate", "--model", "digits_mlp", "--data", "digits", "--plots", "none"]
RUNS = {
    "ssmw": ["--workers", "7", "--byzantine-workers", "2", "--worker-attack", "nan", "--gar",
             "multi-krum"],
    "liubei": ["--app", "liubei", "--workers", "5", "--servers", "4"],
    "processes": ["--no-simulate", "--app", "liubei", "--workers", "3", "--servers", "2",
                  "--byzantine-workers", "1", "--worker-attack", "nan", "--gar", "median"],
    "decentralized": ["--app", "decentralized", "--workers", "5"],
    "aggregathor": ["--app", "aggregathor", "--workers", "7", "--lossy-workers", "1",
                    "--packet-loss", "0.6"],
    "scored": ["--metric", "torch.nn.functional:cross_entropy", "--no-larger-is-better"],
}  # fmt: skip


def rows(section):
    """The cells of a section's tables, as the names in backquotes that stand in each."""
    text = re.split(r"^#{2,3} ", PAGE.partition(f"{section}\n")[2], flags=re.M)[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[re.findall(r"`([\w-]+)`", cell) for cell in line.split("|")[1:-1]] for line in lines]


def fields_of_events():
    found = {
        kind: {name for row in rows(f"### `{kind}`") for name in row[0]}
        for kind in ("step", "evaluated", "worker")
    }
    for kinds, fields, *_ in rows("### Others"):
        found |= {kind: set(fields) for kind in kinds}
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    for name, words in RUNS.items():
        given = [*TINY, *words, "--steps", "4", "--evaluate-every", "2", "--out", str(home / name)]
        assert run(given) == 0, name
    assert run(["train", "--resume", str(home / "ssmw"), "--steps", "6"]) == 0
    return home


@pytest.mark.slow
def test_every_field_that_is_written_stands_on_the_page_and_the_other_way_round(runs):
    documented = fields_of_events()
    written = {}
    for name in RUNS:
        for event in RunDirectory(runs / name).events():
            assert event["event"] in documented, event
            assert set(event) - EVERY <= documented[event["event"]], event
            written.setdefault(event["event"], set()).update(event)
    for kind in ("step", "worker", "resumed", "done"):
        assert documented[kind] - written[kind] <= RARE, kind


@pytest.mark.slow
def test_every_field_of_a_summary_stands_on_the_page(runs):
    documented = {n for row in rows("## `summary.json` of `garfield train`") for n in row[0]}
    found = set()
    for name in RUNS:
        summary = json.loads((runs / name / "summary.json").read_text())
        assert summary["settings"]["steps"] == summary["total_steps"]
        found |= set(summary) - (set(summary["settings"]) - documented)
    assert found == documented
