"""`garfield split train --all-in-store`: one request, a run directory as of any training."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("torch")

from garfield.cli.app import run
from garfield.core.config import read_toml
from garfield.split.objects.index import INDEX_NAME
from garfield.split.server.serving import running_server
from garfield.split.stores import open_store
from tests.forkservers import with_a_forkserver_of_its_own
from tests.split_data import SMALL, TOKEN, put_clothes, server_of, serving
from tests.split_server import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def shared_memory_of_workers():
    with_a_forkserver_of_its_own()
    yield
    with_a_forkserver_of_its_own()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("beside")


@pytest.fixture(scope="module")
def url(root):
    return put_clothes(root / "data")


@pytest.fixture(scope="module")
def server(root, url):
    with server_of(root, workers=1) as running:
        yield running


@pytest.fixture
def train(url, server, tmp_path, monkeypatch):
    """The command on our data; its exit code, and where the run is kept."""
    monkeypatch.setenv("GARFIELD_SPLIT_TOKEN", TOKEN)

    def command(*words, data=url, out="run"):
        given = ["--data", data, "--server", server, "--transforms", SMALL, "--batch", "20"]
        given += ["--lr", "0.001", "--out", str(tmp_path / out), *words]
        return run(["split", "train", "--all-in-store", *given]), tmp_path / out

    return command


def test_a_training_beside_the_store_leaves_what_any_training_does(train, url, capsys):
    code, out = train("--epochs", "2", "--json")
    assert code == 0
    summary = json.loads(capsys.readouterr().out)
    assert json.loads((out / "summary.json").read_text()) == summary
    assert summary["all_in_store"]
    assert summary["iterations"] == 6  # 43 samples, twice
    assert summary["samples"] == 86
    assert summary["received_bytes"] < 5000  # words, and no features
    assert summary["peak_memory_server_bytes"] > 1e8
    assert 0 <= summary["accuracy"] <= 1
    assert open_store(url).size(summary["result"]) > 4 * 512 * 10  # the last layer
    assert read_toml(out / "config.toml")["epochs"] == 2
    assert (out / "learning.png").exists()
    assert not (out / "transfer.png").exists()


def test_trained_layers_that_take_more_to_pack_than_a_step_takes_are_kept(train, url, capsys):
    words = ("--freeze", "0", "--batch", "4", "--momentum", "0", "--json")
    code, _ = train(*words)  # first, so that its memory is not measured with momentum
    assert code == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert open_store(url).size(result) > 40e6


def test_a_training_leaves_the_layers_of_another_alone(train, url, capsys):
    results = []
    for out in ("one", "two"):
        assert train("--json", out=out)[0] == 0
        results.append(json.loads(capsys.readouterr().out)["result"])
    assert {*results} <= {*open_store(url).names(".garfield/trained/")}
    assert results[0] != results[1]


def test_its_losses_are_those_of_a_training_over_a_split(train, url, server, tmp_path):
    _, beside = train("--seed", "5")
    words = ["split", "train", "--data", url, "--server", server, "--transforms", SMALL]
    words += ["--batch", "20", "--lr", "0.001", "--split", "6", "--seed", "5"]
    assert run([*words, "--out", str(tmp_path / "over")]) == 0
    losses = [
        [json.loads(line)["loss"] for line in text.splitlines() if '"event": "batch"' in line]
        for text in ((each / "metrics.jsonl").read_text() for each in (beside, tmp_path / "over"))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert len(losses[0]) == 3


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["--holdout", "1"], "--holdout"),
        (["--split", "4", "--prefetch-mb", "9"], "--split, --prefetch-mb"),
        (["--threads", "2"], "--threads"),
        (["--optimizer", "adam"], "sgd with momentum"),
    ],
)
def test_what_it_does_not_do_is_refused_by_flag(train, capsys, words, flags):
    code, out = train(*words)
    assert code == 2
    assert flags in capsys.readouterr().err
    assert not out.exists()


def test_ranks_do_not_each_start_one(train, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    code, out = train()
    assert code == 2
    assert "one of 2" in capsys.readouterr().err
    assert not out.exists()


def test_a_training_that_diverges_says_so(train, capsys):
    code, _ = train("--lr", "1000", "--epochs", "3", "--freeze", "5")
    assert code == 1
    assert "training has diverged" in capsys.readouterr().err


def test_an_altered_object_ends_it_by_name(train, root, capsys):
    altered = put_clothes(root / "altered")
    store = open_store(altered)
    data = bytearray(store.get("part-001"))
    data[-1] ^= 1
    store.put("part-001", bytes(data))
    assert "part-001" in store.get(INDEX_NAME).decode()
    code, _ = train(data=altered)
    assert code == 1
    assert "part-001 was altered" in capsys.readouterr().err


def test_one_that_waits_for_memory_is_heard_of_until_its_turn_comes(
    root, url, tmp_path, monkeypatch
):
    """However long that is: a client that heard nothing would give up after a while."""
    monkeypatch.setenv("GARFIELD_SPLIT_TOKEN", TOKEN)
    monkeypatch.setattr("garfield.split.server.whole_training.SILENT_S", 0.05)
    words = ["--data", url, "--transforms", SMALL, "--batch", "20", "--lr", "0.001"]
    words += ["--answer-timeout-s", "0.5", "--give-up-s", "0.5"]
    with running_server(serving(root, workers=1)) as server:
        words += ["--all-in-store", "--server", server.url]
        assert (
            run(["split", "train", *words, "--out", str(tmp_path / "first")]) == 0
        )  # measured now
        queue = server.service.queue
        granted = asyncio.run_coroutine_threadsafe(queue.granted(1, 1, 1), server.loop)
        held = granted.result()
        with ThreadPoolExecutor(1) as threads:
            done = threads.submit(run, ["split", "train", *words, "--out", str(tmp_path / "run")])
            until(lambda: queue.waiting == 1)
            time.sleep(1.5)  # three times what the client waits for a word
            server.loop.call_soon_threadsafe(queue.release, held)
            assert done.result() == 0
    told = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert told["iterations"] == 3
