"""What a split server does beside extracting: graphs, whole trainings, predictions, its end."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from garfield.core.errors import ObjectMissing, RequestRefused
from garfield.split import wire
from garfield.split.client.sampler import Place, Sampler
from garfield.split.models import load
from garfield.split.models.graph import to_json
from garfield.split.models.traced import trace
from garfield.split.models.weights import put_weights, weights_bytes
from garfield.split.objects import pack
from garfield.split.server.serving import running_server
from garfield.split.stores import open_store
from garfield.split.stores.files import FileStore
from garfield.split.training import step_seed
from garfield.split.transforms import Transforms
from tests.forkservers import with_a_forkserver_of_its_own
from tests.marks import heavy_but
from tests.split_server import (
    SIDE,
    ask,
    images,
    status,
    stocked,
    until,
)

pytestmark = pytest.mark.slow

MiB = 1 << 20
COUNT = 60
TRANSFORMS = f'[["resize", {SIDE}, {SIDE}]]'


@pytest.fixture(scope="module", autouse=True)
def shared_memory_of_workers():
    with_a_forkserver_of_its_own()
    yield
    with_a_forkserver_of_its_own()


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    return stocked(tmp_path_factory.mktemp("work"), ["ann"], COUNT)


@pytest.fixture(scope="module")
def server(stock):
    with running_server(stock.settings(workers=2, budget="1500MiB")) as running:
        yield running


@pytest.fixture(scope="module")
def ann(stock):
    return stock.tenants["ann"]


class Own(nn.Module):
    """A module that no server knows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 8, 1)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.norm(self.first(x)))
        x = x + self.second(x)
        return self.head(x.mean((2, 3)))


def test_a_users_own_module_runs_from_a_graph_and_its_weights(server, ann):
    torch.manual_seed(5)
    model = trace(Own().eval(), (3, SIDE, SIDE))
    prefix = model.prefix(len(model.layers) - 2)
    digest = put_weights(open_store(ann.url), prefix).hash
    graph = to_json(prefix, (3, SIDE, SIDE))
    request = ann.asks(
        model=None, graph=graph, weights=digest, transforms=TRANSFORMS, split=len(model.layers) - 2
    )
    features = ask(server.url, request, ann.access)
    batch = Transforms.from_json(TRANSFORMS).apply(images(COUNT, 0), range(COUNT), 0, 0)
    np.testing.assert_allclose(features.values, prefix(batch).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "graph",
    [
        "{}",
        "[" * 100_000,
        json.dumps({"format": "garfield-graph", "version": 1, "input": [3, 32, 32], "output": 1,
                    "nodes": [{"op": "os.system", "from": [0]}]}),
        json.dumps({"format": "garfield-graph", "version": 1, "input": [3, 32, 32], "output": 1,
                    "nodes": [{"op": "relu", "from": [7]}]}),
        json.dumps({"format": "garfield-graph", "version": 1, "input": [10**9], "output": 0,
                    "nodes": []}),
    ],
)  # fmt: skip
def test_a_hostile_graph_is_refused_and_the_workers_live(server, ann, graph):
    before = status(server.url)["workers"]["lost"]
    with pytest.raises(RequestRefused) as refused:
        ask(server.url, ann.asks(model=None, graph=graph, transforms=TRANSFORMS), ann.access)
    assert refused.value.status == 422
    assert status(server.url)["workers"]["lost"] == before


MEASURED = [("resnet18", 8, 96), ("alexnet", 10, 112)]


@pytest.mark.parametrize(("model", "split", "side"), heavy_but(MEASURED, MEASURED[1]))
def test_predicted_memory_is_never_below_the_measured_peak_and_little_above(
    server, ann, model, split, side
):
    """At batches other than those measured at; what is read comes on top and is small here."""
    store = open_store(ann.url)
    prefix = load(model, seed=1).prefix(split)
    request = ann.asks(
        model=model, split=split, weights=put_weights(store, prefix).hash,
        transforms=f'[["resize", {side}, {side}]]',
    )  # fmt: skip
    body = wire.encode_request(
        wire.ProfileRequest(ann.url, split, (3, side, side), model=model, weights=request.weights)
    )
    headers = {wire.ACCESS_HEADER: ann.access}
    told = httpx.post(f"{server.url}/v1/profile", content=body, headers=headers, timeout=120).json()
    for batch in (20, 60, 120):
        samples = tuple(index % COUNT for index in range(batch))
        features = ask(server.url, replace(request, batch=batch, samples=samples), ann.access)
        assert features.trailer["cos_batch"] == batch
        peak = features.trailer["peak_bytes"]
        predicted = told["base_bytes"] + batch * told["per_sample_bytes"]
        assert peak <= features.trailer["reserved_bytes"]
        # the rehearsal has no object and no images being decoded; both are in the peak here
        assert peak <= predicted + 4 * MiB
        assert predicted <= 1.10 * peak + 4 * MiB
    assert weights_bytes(prefix) > 0


def _train_body(ann, **changes):
    """A request to train on objects of that many samples, which hash to what is stored now."""
    given = {
        "data": ann.url, "objects": ("part-0",), "counts": (COUNT,), "model": "resnet18",
        "freeze": 11, "classes": 10, "epochs": 2, "batch": 40, "lr": 0.05,
        "transforms": TRANSFORMS, "seed": 4,
    }  # fmt: skip
    given |= changes
    store = open_store(ann.url)
    if "sha256" not in given:
        given["sha256"] = tuple(_sha256_or_zeros(store, name) for name in given["objects"])
    return wire.encode_request(wire.TrainRequest(**given))


def _sha256_or_zeros(store, name):
    try:
        return sha256(store.get(name)).hexdigest()
    except ObjectMissing:
        return "0" * 64


def test_a_whole_training_beside_the_store_is_plain_fine_tuning(server, ann):
    store = open_store(ann.url)
    more, labels = images(30, 77), [index % 10 for index in range(30)]
    store.put("part-1", pack(more, labels, "uint8"))
    headers = {wire.ACCESS_HEADER: ann.access}
    with httpx.stream(
        "POST",
        f"{server.url}/v1/train",
        content=_train_body(ann, objects=("part-0", "part-1"), counts=(COUNT, 30)),
        headers=headers,
        timeout=300,
    ) as answer:
        assert answer.status_code == 200
        told = [json.loads(line) for line in answer.iter_lines()]
    *batches, done = told
    assert done["event"] == "done"
    assert 0 < done["peak_bytes"] <= done["reserved_bytes"]
    losses, trained = _plain_training(images(COUNT, 0) + more, [i % 10 for i in range(60)] + labels)
    np.testing.assert_allclose([each["loss"] for each in batches], losses, rtol=1e-3)
    from safetensors.torch import load as read_safetensors

    stored = read_safetensors(store.get(done["result"]))
    for name, value in trained.state_dict().items():
        torch.testing.assert_close(stored[name], value, rtol=1e-3, atol=1e-4)


def _five(ann):
    store, names = open_store(ann.url), tuple(f"five-{number}" for number in range(5))
    for name in names:
        store.put(name, store.get("part-0"))
    return names


def test_a_training_keeps_its_addresss_seat_for_its_first_object_only(stock, ann, monkeypatch):
    """A store that takes long over the rest keeps no other tenant behind the same proxy out."""
    quick, asked, go_on = FileStore.size, threading.Event(), threading.Event()

    def slow(store, name):
        if name == "five-1":
            asked.set()
            assert go_on.wait(60)
        return quick(store, name)

    body = _train_body(ann, objects=_five(ann), counts=(COUNT,) * 5, freeze=99)
    monkeypatch.setattr(FileStore, "size", slow)
    headers = {wire.ACCESS_HEADER: ann.access}
    settings = stock.settings(workers=1, most_per_client=1)
    with running_server(settings) as running, ThreadPoolExecutor(1) as threads:
        url = f"{running.url}/v1/train"
        training = threads.submit(httpx.post, url, content=body, headers=headers, timeout=60)
        try:
            assert asked.wait(60)
            with pytest.raises(RequestRefused, match="of this tenant"):  # not: from this address
                ask(running.url, ann.asks(), ann.access)
        finally:
            go_on.set()
        assert training.result().json()["error"] == "bad-model"


def test_a_slow_store_may_take_its_time_for_each_object_of_a_training(stock, ann, monkeypatch):
    quick = FileStore.size

    def slow(store, name):
        time.sleep(0.3)
        return quick(store, name)

    monkeypatch.setattr(FileStore, "size", slow)
    body = _train_body(ann, objects=_five(ann), counts=(COUNT,) * 5, freeze=99)
    with running_server(stock.settings(workers=1, store_s=1.0)) as running:
        headers = {wire.ACCESS_HEADER: ann.access}
        answer = httpx.post(f"{running.url}/v1/train", content=body, headers=headers, timeout=60)
    assert answer.json()["error"] == "bad-model"  # the store had answered: it looked at the rest


def _plain_training(stored, labels):
    """The same by hand, all images at once."""
    tail = load("resnet18", classes=10, seed=4).tail(0, 11)
    tail.train()
    optimizer = torch.optim.SGD(tail.trained.parameters(), 0.05, 0.9)
    transforms = Transforms.from_json(TRANSFORMS)
    losses = []
    for epoch in range(2):
        for share in Sampler((60, 30), 40, 4).shares(Place(epoch)):
            ids = [(60 * piece.object) + index for piece in share.pieces for index in piece.indices]
            batch = transforms.apply([stored[each] for each in ids], ids, 4, epoch)
            torch.manual_seed(step_seed(4, len(losses)))
            loss = functional.cross_entropy(tail(batch), torch.tensor([labels[e] for e in ids]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    return losses, tail.trained


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"model": "resnet19"}, 422),
        ({"freeze": 99}, 422),
        ({"objects": ("nothing",)}, 404),
        ({"batch": 100_000}, 507),
        ({"data": "file:///etc"}, 403),
    ],
)
def test_a_training_that_cannot_be_is_refused(server, ann, changes, code):
    answer = httpx.post(
        f"{server.url}/v1/train",
        content=_train_body(ann, **changes),
        headers={wire.ACCESS_HEADER: ann.access},
        timeout=120,
    )
    assert answer.status_code == code


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sha256": ("ab" * 32,)}, "part-0 was altered"),
        ({"counts": (COUNT - 1,)}, f"part-0 has {COUNT} samples; the request says {COUNT - 1}"),
    ],
)
def test_a_training_on_an_object_that_is_not_the_indexs_ends_and_names_it(
    server, ann, changes, says
):
    answer = httpx.post(
        f"{server.url}/v1/train",
        content=_train_body(ann, **changes),
        headers={wire.ACCESS_HEADER: ann.access},
        timeout=120,
    )
    last = json.loads(answer.text.splitlines()[-1])
    assert last["error"] == wire.Refusal.BROKEN_OBJECT.word
    assert says in last["message"]


def test_a_training_that_breaks_off_says_why_as_a_line_of_its_own(server, ann, monkeypatch):
    async def failing(grant, task, progress, out):
        await out.put(b'{"event": "there"}\n')
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(server.service, "run", failing)
    headers = {wire.ACCESS_HEADER: ann.access}
    url = f"{server.url}/v1/train"
    answer = httpx.post(url, content=_train_body(ann), headers=headers, timeout=120)
    first, last = map(json.loads, answer.text.splitlines())
    assert first == {"event": "there"}
    assert last == {
        "event": "failed", "error": "failed", "message": "The server failed: OSError."
    }  # fmt: skip


def test_the_command_serves_until_it_is_told_to_stop_and_leaves_nothing_behind(stock, ann):
    command = [
        sys.executable, "-m", "garfield", "split", "serve", "--store", stock.root.as_uri(),
        "--port", "0", "--workers", "1", "--budget", "400MiB", "--json",
        "--file-tokens", str(stock.root.parent / "tokens.json"),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            told = _first_json(process.stdout)
            assert told["event"] == "listening"
            assert len(ask(told["url"], ann.asks(), ann.access).values) == COUNT
            children = _children(process.pid)
            assert children
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            assert process.wait(60) == 0
        finally:
            process.kill()
    until(lambda: all(map(_is_gone, children)))
    assert not [*Path("/sys/fs/cgroup").rglob(f"garfield-split-{process.pid}-*")]


def _first_json(stream):
    text = ""
    for line in stream:
        text += line
        try:
            return json.loads(text)
        except ValueError:
            continue
    raise AssertionError(f"it ended after {text!r}")


def _children(pid):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            child = int(path.parent.name)
            found += [child, *_children(child)]
    return found


def _is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
