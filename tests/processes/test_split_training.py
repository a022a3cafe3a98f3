"""A client against real servers and stores: equal to plain fine-tuning, resumed, faults, cache."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from garfield.core.errors import AccessDenied, ConfigError, ObjectDamaged, RequestRefused
from garfield.report.split_summary import SplitHistory, split_summary
from garfield.runs.run_directory import RunDirectory
from garfield.split.client.bandwidth import Bandwidth
from garfield.split.client.data_set import DataSet
from garfield.split.client.loader import SplitLoader
from garfield.split.client.planning import servers_load, situation
from garfield.split.limited_link import LimitedLink
from garfield.split.models import load
from garfield.split.planner import PLANNERS, choose
from garfield.split.settings import FineTuning, Loading
from garfield.split.stores import StoreSettings
from garfield.split.stores.files import write_tokens
from garfield.split.training import fine_tune
from tests.marks import heavy_but
from tests.split_data import RANDOM, SMALL, TOKEN, ours, put_clothes, server_of, talking

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    put_clothes(folder / "data")
    return folder


@pytest.fixture(scope="module")
def url(root):
    return f"file://{root}/data"


@pytest.fixture(scope="module")
def server(root):
    with server_of(root) as url:
        yield url


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def data_of(url):
    return DataSet.open(url, ours())


def plain(url, transforms, *, batch, epochs, seed=1, model="resnet18"):
    """Fine-tuning as everybody writes it: whole model, whole batches, nothing of ours but data."""
    from garfield.split.client.sampler import Place, Sampler
    from garfield.split.transforms import Transforms

    data, network = data_of(url), load(model, classes=10, seed=seed)
    steps = Transforms.parse(transforms)
    sampler = Sampler(tuple(each.count for each in data.objects), batch, seed)
    held = [data.parsed(n, data.store.get(each.name)) for n, each in enumerate(data.objects)]
    whole = network.module
    frozen = network.prefix(network.freeze + 1)
    for parameter in whole.parameters():
        parameter.requires_grad_(True)
    for parameter in frozen.parameters():
        parameter.requires_grad_(False)
    trained = [parameter for parameter in whole.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, 1e-3, 0.9)
    losses, gradients = [], []
    for epoch in range(epochs):
        for share in sampler.shares(Place(epoch)):
            images = torch.cat([
                steps.apply(
                    held[piece.object].images(list(piece.indices)),
                    [data.first_ids[piece.object] + index for index in piece.indices],
                    seed,
                    epoch,
                )
                for piece in share.pieces
            ])  # fmt: skip
            labels = torch.tensor(
                [int(held[p.object].labels[index]) for p in share.pieces for index in p.indices]
            )
            whole.eval()  # frozen layers; the trained ones of this model have no mode
            loss = functional.cross_entropy(whole(images), labels)
            optimizer.zero_grad()
            loss.backward()
            gradients.append(torch.cat([each.grad.flatten() for each in trained]).clone())
            optimizer.step()
            losses.append(float(loss.detach()))
    return losses, gradients


def over_split(url, servers, transforms, *, batch, epochs, split, seed=1, **more):
    loading = Loading(split=split, transforms=transforms, seed=seed, **more)
    model = load("resnet18", classes=10, seed=seed)
    loader = SplitLoader(data_of(url), model, servers, batch=batch, loading=loading)
    trained = list(loader.tail.trained.parameters())
    optimizer = torch.optim.SGD(trained, 1e-3, 0.9)
    losses, gradients = [], []
    while loader.epoch < epochs:
        for features, labels in loader:
            loss = functional.cross_entropy(loader.tail(features), labels)
            optimizer.zero_grad()
            loss.backward()
            gradients.append(torch.cat([each.grad.flatten() for each in trained]).clone())
            optimizer.step()
            losses.append(float(loss.detach()))
    return losses, gradients


# -- the same as plain fine-tuning --------------------------------------------------------


@pytest.mark.parametrize("transforms", [SMALL, RANDOM], ids=["calm", "augmented"])
@pytest.mark.parametrize(
    ("split", "batch"),
    heavy_but([(0, 10), (1, 10), (4, 25), (9, 10), (12, 43)], (4, 25)),
)
def test_losses_and_gradients_equal_plain_fine_tuning(url, server, split, batch, transforms):
    with talking(server) as servers:
        found = over_split(url, servers, transforms, batch=batch, epochs=2, split=split)
    expected = plain(url, transforms, batch=batch, epochs=2)
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-5)
    for ours_, theirs in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(ours_, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.heavy
@pytest.mark.parametrize("cos_batch", [1, 3, 200])
def test_the_batch_of_the_server_changes_nothing(root, url, cos_batch):
    from garfield.split.scheduler import Batching

    batching = Batching(adapt=False, fixed_batch=cos_batch)
    with server_of(root, workers=1, batching=batching) as server, talking(server) as servers:
        found = over_split(url, servers, SMALL, batch=15, epochs=1, split=8)
    expected = plain(url, SMALL, batch=15, epochs=1)
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-5)


@pytest.mark.heavy
@pytest.mark.parametrize("more", [{"features": "float16"}, {"compression": "zlib"}])
def test_smaller_features_train_almost_alike(url, server, more):
    with talking(server) as servers:
        small = over_split(url, servers, SMALL, batch=15, epochs=1, split=12, **more)
        whole = over_split(url, servers, SMALL, batch=15, epochs=1, split=12)
    tolerance = 0 if "compression" in more else 5e-3
    np.testing.assert_allclose(small[0], whole[0], rtol=tolerance)


@pytest.mark.parametrize("kind", ["jpeg", "float32"])
def test_every_stored_format_gives_the_same_on_both_sides(root, server, kind):
    url = put_clothes(root / kind, counts=(9, 9), kind=kind)
    with talking(server) as servers:
        split = over_split(url, servers, RANDOM, batch=6, epochs=1, split=5)
        streamed = over_split(url, servers, RANDOM, batch=6, epochs=1, split=0)
    np.testing.assert_allclose(split[0], streamed[0], rtol=2e-5)


@pytest.mark.heavy
def test_ranks_together_have_the_gradient_of_one(url, server):
    with talking(server) as servers:
        one = over_split(url, servers, SMALL, batch=12, epochs=1, split=6)
        loaders = [
            SplitLoader(
                data_of(url), load("resnet18", classes=10, seed=1), servers, batch=12,
                loading=Loading(split=6, transforms=SMALL, seed=1, rank=rank, ranks=3),
            )
            for rank in range(3)
        ]  # fmt: skip
        first = [next(iter(loader)) for loader in loaders]
        total = 0.0
        for loader, (features, labels) in zip(loaders, first, strict=True):
            scores = loader.tail(features)
            (functional.cross_entropy(scores, labels, reduction="sum") / 12).backward()
            trained = loader.tail.trained.parameters()
            total = total + torch.cat([each.grad.flatten() for each in trained])
    torch.testing.assert_close(total, one[1][0], rtol=1e-4, atol=1e-5)


class OwnNetwork(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.block = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.head = torch.nn.Linear(8, 10)

    def forward(self, x):
        x = functional.relu(self.norm(self.stem(x)))
        x = functional.relu(x + self.block(x))
        return self.head(x.mean((2, 3)))


@pytest.mark.heavy
def test_a_module_of_ones_own_is_split_as_well(url, server):
    from garfield.split.models.traced import trace

    found = []
    with talking(server) as servers:
        for split in (4, 0):
            torch.manual_seed(5)
            model = trace(OwnNetwork(), (3, 32, 32))
            loading = Loading(split=split, transforms=RANDOM, seed=1)
            loader = SplitLoader(data_of(url), model, servers, batch=10, loading=loading)
            optimizer = torch.optim.SGD(loader.tail.trained.parameters(), 0.1)
            losses = []
            for features, labels in loader:
                loss = functional.cross_entropy(loader.tail(features), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
            found.append(losses)
        assert loader.traffic.requests == len(loader.data.objects)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


# -- resuming -----------------------------------------------------------------------------


@pytest.mark.parametrize("after", heavy_but([1, 3, 4], 3))
def test_a_loader_goes_on_in_the_middle_of_an_epoch_with_another_split(url, server, after):
    with talking(server) as servers:

        def loader(split):
            loading = Loading(split=split, transforms=RANDOM, seed=2)
            model = load("resnet18", classes=10, seed=1)
            return SplitLoader(data_of(url), model, servers, batch=10, loading=loading)

        def scored(loader, count=None):
            loader.tail.eval()
            with torch.no_grad():
                return [(loader.tail(x), y) for x, y in islice(iter(loader), count)]

        whole = scored(loader(7))
        first = loader(7)
        begun = scored(first, after)
        second = loader(3)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert len(second) == len(whole) - after
        rest = scored(second)
    assert len(begun) + len(rest) == len(whole)
    for (scores, labels), (expected, right) in zip([*begun, *rest], whole, strict=True):
        torch.testing.assert_close(scores, expected, rtol=1e-3, atol=1e-3)
        assert labels.tolist() == right.tolist()


def test_a_place_in_another_order_is_refused(url):
    def loader(**more):
        model = load("resnet18", classes=10)
        loading = Loading(baseline=True, transforms=SMALL, seed=more.pop("seed", 0))
        return SplitLoader(data_of(url), model, None, loading=loading, **more)

    state = loader(batch=10).state_dict()
    loader(batch=10).load_state_dict(state)
    for other in (loader(batch=11), loader(batch=10, seed=1)):
        with pytest.raises(ConfigError, match="another order"):
            other.load_state_dict(state)


def command(*words, **more):
    environment = os.environ | {"GARFIELD_SPLIT_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "garfield", "split", *words],
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,
    )  # fmt: skip


def fine_tuning(url, server, **loading):
    return FineTuning(
        data=url, model="resnet18", batch=6, epochs=3, lr=1e-3, checkpoint_every=2,
        server=(server,), loading=Loading(transforms=RANDOM, **loading), store=ours(),
    )  # fmt: skip


def trained(url, server, out, epochs=3):
    return command(
        "train", "--data", url, "--server", server, "--model", "resnet18", "--batch", "6",
        "--epochs", str(epochs), "--lr", "0.001", "--transforms", RANDOM, "--checkpoint-every", "2",
        "--split", "4", "--out", str(out), "--json",
    )  # fmt: skip


def kill_after(process, metrics, batches):
    """Kill -9 a training once it has told of so many batches."""
    ended = threading.Event()
    threading.Thread(target=lambda: (process.wait(), ended.set())).start()
    while not ended.wait(0.02):
        if metrics.exists() and metrics.read_text().count('"event": "batch"') >= batches:
            process.kill()
            break
    assert ended.wait(30)
    process.communicate()


@pytest.mark.heavy
@pytest.mark.timeout(900)  # starts processes that import torch
def test_a_training_that_was_killed_twice_has_the_losses_of_one_that_was_not(url, server, tmp_path):
    whole, cut = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "cut")
    fine_tune(fine_tuning(url, server, split=6), whole, lambda event: None)
    kill_after(trained(url, server, cut.path), cut.metrics, 5)
    resumed = command("train", "--resume", str(cut.path), "--split", "9", "--connections", "1")
    kill_after(resumed, cut.metrics, 14)
    fine_tune(fine_tuning(url, server, split=0), cut, lambda event: None, resume=True)
    histories = [SplitHistory.of(each.events()) for each in (whole, cut)]
    expected, found = ([batch["loss"] for batch in each.batches] for each in histories)
    assert len(found) == len(expected) == 24
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert [batch["step"] for batch in histories[1].batches] == list(range(1, 25))
    assert {batch["split"] for batch in histories[1].batches} == {4, 9, 0}
    assert split_summary(cut.events())["iterations"] == 24
    assert TOKEN not in cut.config.read_text()


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_an_interrupted_training_says_how_to_go_on(url, server, tmp_path):
    process = trained(url, server, tmp_path / "run", epochs=1000)  # more than it takes
    metrics = tmp_path / "run" / "metrics.jsonl"
    ended = threading.Event()
    threading.Thread(target=lambda: (process.wait(), ended.set())).start()
    while not ended.wait(0.02):
        if metrics.exists() and metrics.read_text().count('"event": "batch"') >= 4:
            process.send_signal(signal.SIGINT)
            break
    assert ended.wait(60)
    out, err = process.communicate()
    assert process.returncode == 130, err
    assert f"--resume {tmp_path / 'run'}" in err
    assert json.loads(out)["interrupted"]


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_two_ranks_under_torchrun_have_the_losses_of_one(url, server, tmp_path):
    alone, shared = RunDirectory(tmp_path / "alone"), RunDirectory(tmp_path / "shared")
    fine_tune(fine_tuning(url, server, split=6), alone, lambda event: None)
    words = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "-m", "garfield", "split",
        "train", "--data", url, "--server", server, "--batch", "6", "--epochs", "3",
        "--lr", "0.001", "--transforms", RANDOM, "--split", "6", "--out", str(shared.path),
    ]  # fmt: skip
    environment = os.environ | {"GARFIELD_SPLIT_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected, found = (SplitHistory.of(each.events()).batches for each in (alone, shared))
    assert [each["samples"] for each in found] == [each["samples"] for each in expected]
    losses = [[each["loss"] for each in batches] for batches in (found, expected)]
    np.testing.assert_allclose(*losses, rtol=1e-4)


# -- what a run leaves --------------------------------------------------------------------


def test_a_training_leaves_what_its_summary_says(url, server, tmp_path):
    settings = FineTuning(
        data=url, model="resnet18", batch=10, epochs=2, lr=1e-3, holdout=1, server=(server,),
        loading=Loading(split=12, transforms=SMALL), store=ours(),
    )  # fmt: skip
    directory = RunDirectory(tmp_path / "run")
    fine_tune(settings, directory, lambda event: None)
    summary = split_summary(directory.events())
    assert summary["iterations"] == 8  # 34 samples left, 2 epochs
    assert summary["split"] == 12
    features = 512 * 4  # of resnet18 at 32×32, behind its last block
    assert features < summary["bytes_per_sample"] < 1.2 * features
    assert summary["uploaded_bytes"] > 40e6
    assert summary["accuracy_of"] == "held-out samples"
    assert 0 <= summary["accuracy"] <= 1
    assert summary["peak_memory_client_bytes"] > 1e8
    assert summary["peak_memory_server_bytes"] > 1e5
    assert [each["split"] for each in summary["epochs"]] == [12, 12]


def test_what_to_judge_by_may_lie_somewhere_else(root, url, server, tmp_path):
    test = put_clothes(root / "elsewhere", counts=(5, 6), first=43)
    settings = FineTuning(
        data=url, test_data=test, model="resnet18", batch=20, lr=1e-3, server=(server,),
        loading=Loading(split=4, transforms=RANDOM), store=ours(),
    )  # fmt: skip
    directory = RunDirectory(tmp_path / "run")
    fine_tune(settings, directory, lambda event: None)
    (judged,) = SplitHistory.of(directory.events()).evaluations
    assert judged["count"] == 11


# -- faults -------------------------------------------------------------------------------


def test_a_server_that_dies_in_the_middle_of_an_epoch_is_replaced_by_another(root, url, server):
    """The second server is reached by a link that is cut after the first batch."""
    with server_of(root, workers=1) as doomed, LimitedLink(1e9) as link:
        host, port = doomed.removeprefix("http://").split(":")
        through = f"http://127.0.0.1:{link.to(host, int(port))}"
        with talking(through, server, connections=2) as servers:
            expected = over_split(url, servers, SMALL, batch=6, epochs=1, split=4)
            loading = Loading(split=4, transforms=SMALL, seed=1)
            model = load("resnet18", classes=10, seed=1)
            loader = SplitLoader(data_of(url), model, servers, batch=6, loading=loading)
            optimizer = torch.optim.SGD(loader.tail.trained.parameters(), 1e-3, 0.9)
            losses = []
            for features, labels in loader:
                if not losses:
                    link.cut()
                loss = functional.cross_entropy(loader.tail(features), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
    np.testing.assert_allclose(losses, expected[0], rtol=1e-6)


def test_an_altered_object_is_refused_by_name_on_both_ways(root, server, tmp_path):
    url = put_clothes(root / "altered", counts=(6, 6))
    path = root / "altered" / "part-001"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with talking(server) as servers:
        with pytest.raises(RequestRefused, match="part-001") as caught:
            over_split(url, servers, SMALL, batch=6, epochs=1, split=3)
        assert caught.value.refusal == "broken-object"
        with pytest.raises(ObjectDamaged, match="part-001"):
            over_split(url, servers, SMALL, batch=6, epochs=1, split=0)


def test_a_label_beyond_the_classes_is_refused_by_flag(url, tmp_path):
    loading = Loading(baseline=True, transforms=SMALL)
    settings = FineTuning(data=url, classes=3, batch=20, loading=loading)
    with pytest.raises(ConfigError, match="--classes 10"):
        fine_tune(settings, RunDirectory(tmp_path / "run"), lambda event: None)


def test_a_wrong_token_is_refused_and_nothing_is_read(url, server):
    with talking(server) as servers:
        data = DataSet.open(url, StoreSettings(file_token="another"))
        model = load("resnet18", classes=10, seed=1)
        loading = Loading(split=3, transforms=SMALL)
        loader = SplitLoader(data, model, servers, batch=6, loading=loading)
        with pytest.raises(RequestRefused) as caught:
            next(iter(loader))
        assert caught.value.status == 401
        assert loader.traffic.received_bytes == 0


# -- cache --------------------------------------------------------------------------------


def cached(url, servers, cache, transforms=SMALL, variants=0, split=10):
    loading = Loading(
        split=split, transforms=transforms, cache=str(cache), cache_variants=variants, seed=1
    )
    model = load("resnet18", classes=10, seed=1)
    return SplitLoader(data_of(url), model, servers, batch=10, loading=loading)


def epochs_of(loader, count):
    """What each epoch received, and the features by sample label order."""
    received, seen = [], []
    for _ in range(count):
        before = loader.traffic.received_bytes
        seen.append([(x.clone(), y.clone()) for x, y in loader])
        received.append(loader.traffic.received_bytes - before)
    return received, seen


def test_later_epochs_transfer_nothing_and_see_the_same(url, server, tmp_path):
    with talking(server) as servers:
        received, seen = epochs_of(cached(url, servers, tmp_path), 3)
        uncached = over_split(url, servers, SMALL, batch=10, epochs=2, split=10)
    assert received[0] > 0
    assert received[1:] == [0, 0]
    assert len(uncached[0]) == len(seen[0]) + len(seen[1])
    totals = [torch.cat([x.flatten(1).sum(1) for x, _ in epoch]).sort().values for epoch in seen]
    torch.testing.assert_close(totals[0], totals[1], rtol=1e-5, atol=1e-4)


@pytest.mark.heavy
def test_with_augmentation_k_variants_are_kept_and_come_in_turn(url, server, tmp_path):
    with talking(server) as servers:
        received, seen = epochs_of(cached(url, servers, tmp_path, RANDOM, variants=2), 4)
        uncached, _ = epochs_of(cached(url, servers, tmp_path / "none", RANDOM), 3)
    assert [count > 0 for count in received] == [True, True, False, False]
    assert min(uncached) > 0
    totals = [torch.cat([x.flatten(1).sum(1) for x, _ in epoch]).sort().values for epoch in seen]
    torch.testing.assert_close(totals[0], totals[2], rtol=1e-5, atol=1e-4)
    assert not torch.allclose(totals[0], totals[1], rtol=1e-5)


@pytest.mark.heavy
def test_features_of_streamed_images_are_kept_as_well(url, server, tmp_path):
    with talking(server) as servers:
        received, seen = epochs_of(cached(url, servers, tmp_path / "here", split=0), 2)
        _, expected = epochs_of(cached(url, servers, tmp_path / "there", split=12), 2)
    assert received[0] > 0
    assert received[1] == 0
    for (ours_, labels), (theirs, right) in zip(seen[1], expected[1], strict=True):
        torch.testing.assert_close(ours_, theirs, rtol=1e-3, atol=1e-3)
        assert labels.tolist() == right.tolist()


@pytest.mark.heavy
@pytest.mark.parametrize("named", sorted(PLANNERS))
def test_what_is_kept_is_the_smallest_whoever_plans(url, server, tmp_path, named):
    with talking(server) as servers:
        loading = Loading(planner=named, transforms=SMALL, cache=str(tmp_path))
        model = load("resnet18", classes=10, seed=1)
        loader = SplitLoader(data_of(url), model, servers, batch=10, loading=loading)
        next(iter(loader))
    assert loader.split == loader.freeze + 1


class Withdrawn:
    """A store whose owner has taken our rights away."""

    def __init__(self, store):
        self._store = store

    def size(self, name):
        raise AccessDenied(f"{name} is not ours to use.", status=403)

    def __getattr__(self, name):
        return getattr(self._store, name)


def test_what_is_kept_is_not_handed_out_once_the_right_is_withdrawn(url, server, tmp_path):
    from dataclasses import replace

    with talking(server) as servers:
        loader = cached(url, servers, tmp_path)
        epochs_of(loader, 1)
        loader.data = replace(loader.data, store=Withdrawn(loader.data.store))
        with pytest.raises(AccessDenied, match="not ours"):
            next(iter(loader))


# -- a link that changes ------------------------------------------------------------------


@pytest.mark.heavy
def test_the_split_is_planned_anew_when_the_link_changes(root, url, server):
    host, port = server.removeprefix("http://").split(":")
    with LimitedLink(400e6) as link:
        through = f"http://127.0.0.1:{link.to(host, int(port))}"
        with talking(through) as servers:
            loading = Loading(transforms=SMALL, seed=1)
            model = load("resnet18", classes=10, seed=1)
            loader = SplitLoader(data_of(url), model, servers, batch=43, loading=loading)
            for _ in loader:
                pass
            link.bps = 1e6
            for _ in loader:
                pass
    fast, slow = loader.plans[0], loader.plans[1]
    assert fast.bandwidth.bps > 5 * slow.bandwidth.bps
    assert slow.plan is not fast.plan
    assert slow.split > fast.split


@pytest.mark.heavy
def test_the_predictive_planner_trains_by_times_of_both_sides(url, server, tmp_path, monkeypatch):
    monkeypatch.setenv("GARFIELD_DATA", str(tmp_path / "kept"))
    settings = FineTuning(
        data=url, batch=10, lr=1e-3, server=(server,), store=ours(),
        loading=Loading(planner="predictive", transforms=SMALL),
    )  # fmt: skip
    directory = RunDirectory(tmp_path / "run")
    trainer = fine_tune(settings, directory, lambda event: None)
    plan = trainer.loader.plans[0].plan
    assert plan.planner == "predictive"
    assert plan.predicted.iteration_s > 0
    assert split_summary(directory.events())["split"] == plan.split
    with talking(server) as servers:
        loader = SplitLoader(
            data_of(url), load("resnet18", classes=10), servers, batch=10, loading=settings.loading
        )
        link = Bandwidth(1e3, 1, 1.0)  # beside which no computing counts
        slow = situation(loader, link, servers_load(servers))
    frozen = loader.freeze + 1
    assert slow.costs.server_forward_s[:frozen] != slow.costs.client_forward_s[:frozen]
    assert slow.costs.server_forward_s[frozen:] == slow.costs.client_forward_s[frozen:]
    assert slow.costs.client_prepare_s > 0
    assert 0 < slow.costs.server_prepare_s < 1
    smallest = min(range(frozen + 1), key=slow.sample_bytes)
    chosen = choose(slow, "predictive").split
    assert slow.sample_bytes(chosen) == slow.sample_bytes(smallest)


def test_tokens_file_is_for_the_owner_alone(tmp_path):
    write_tokens(tmp_path / "tokens.json", {TOKEN: ["."]})
    assert TOKEN not in (tmp_path / "tokens.json").read_text()
    assert Path(tmp_path / "tokens.json").stat().st_mode & 0o077 == 0


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_the_example_learns_and_transfers_features_once():
    example = Path(__file__).parents[2] / "examples" / "07-split-fine-tuning" / "fine_tune.py"
    done = subprocess.run(
        [sys.executable, example], capture_output=True, text=True, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"final accuracy (\S+)", done.stdout)[1]) > 0.7
    splits, received = zip(*re.findall(r"split (\d+), .* (\d+) bytes", done.stdout), strict=True)
    assert set(splits) == {"23"}
    assert len(set(received)) == 1  # all in the first epoch
