"""Features put beside the data by real servers, in real stores: made once, read by everybody."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from garfield.core.errors import AccessDenied, ConfigError, RequestRefused, SplitError
from garfield.report.split_summary import split_summary, split_table
from garfield.runs.run_directory import RunDirectory
from garfield.split import wire
from garfield.split.client.data_set import DataSet
from garfield.split.client.loader import SplitLoader
from garfield.split.embedded.swift import EmbeddedSwift
from garfield.split.feature_objects import features_name
from garfield.split.models import load
from garfield.split.server.serving import running_server
from garfield.split.server.settings import ServeSettings
from garfield.split.settings import FineTuning, Loading
from garfield.split.stores import StoreSettings, open_store
from garfield.split.training import fine_tune
from tests.marks import heavy_but
from tests.split_data import RANDOM, SMALL, ours, put_clothes, put_in, server_of, talking

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COUNTS = (8, 5, 6)
SPLIT = 10
FOLDER = ".garfield/features/"


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def swift(tmp_path_factory):
    pytest.importorskip("swift", reason="the extra split-demo brings it")
    with EmbeddedSwift(tmp_path_factory.mktemp("swift")) as swift:
        yield swift


@dataclass
class Place:
    """A store with a data set, and a server beside it."""

    url: str
    settings: StoreSettings
    server: str

    def data(self) -> DataSet:
        return DataSet.open(self.url, self.settings)

    @property
    def kept(self) -> list[str]:
        """The names of all features that lie beside the data."""
        return self.data().store.names(FOLDER)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    root = tmp_path_factory.mktemp("stored")
    url = put_clothes(root / "data", COUNTS, "jpeg")
    with server_of(root) as server:
        yield Place(url, ours(), server)


@pytest.fixture(scope="module", params=heavy_but(["file", "swift", "s3"], "s3"))
def place(request):
    if request.param == "file":
        yield request.getfixturevalue("files")
        return
    swift = request.getfixturevalue("swift")
    url = f"{request.param}://{request.param}-clothes/train"
    put_in(open_store(url.replace("s3://", "swift://"), settings=swift.settings("alice")), COUNTS)
    settings = ServeSettings(
        store=f"{request.param}://", port=0, workers=2, budget="3GiB",
        connection=swift.server_settings(),
    )  # fmt: skip
    with running_server(settings) as server:
        yield Place(url, swift.settings("alice"), server.url)


def loader_of(data, servers, seed=1, **more):
    given: dict[str, Any] = {"split": SPLIT, "transforms": SMALL, "materialise": True, "seed": 1}
    model = load("resnet18", classes=10, seed=seed)
    return SplitLoader(data, model, servers, batch=7, loading=Loading(**given | more))


def epoch_of(loader):
    """An epoch's batches, and the bytes that it received."""
    before = loader.traffic.received_bytes
    seen = [(features.clone(), labels.tolist()) for features, labels in loader]
    return seen, loader.traffic.received_bytes - before


def assert_same(one, other):
    for (features, labels), (expected, right) in zip(one, other, strict=True):
        torch.testing.assert_close(features, expected, rtol=1e-3, atol=1e-4)
        assert labels == right


def test_features_are_made_once_and_later_runs_read_them_without_a_server(place):
    with talking(place.server) as servers:
        direct = loader_of(place.data(), servers, seed=7, materialise=False)
        expected = [epoch_of(direct)[0] for _ in range(2)]
        before = {*place.kept}
        loader = loader_of(place.data(), servers, seed=7)
        told = []
        loader.progress = lambda done, total: told.append((done, total))
        loader.prepare()
        assert loader.traffic.received_bytes == 0  # they were made over there
        found = [epoch_of(loader) for _ in range(2)]
        asked = servers.status()["served"]["requests"]
        sizes = [place.data().store.size(name) for name in {*place.kept} - before]
        later = loader_of(place.data(), None, seed=7)
        again, received = epoch_of(later)
        assert servers.status()["served"]["requests"] == asked
    for (seen, _), right in zip(found, expected, strict=True):
        assert_same(seen, right)
    assert_same(again, expected[0])
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert [loader.extractions[epoch].made for epoch in (0, 1)] == [3, 0]
    assert loader.extractions[0].stored_bytes == sum(sizes)
    assert [received, *(bytes_ for _, bytes_ in found)] == 3 * [sum(sizes)]  # features alone
    assert later.extractions[0].made == 0


def test_without_the_right_to_write_nothing_is_stored_and_the_server_says_so(place):
    if place.url.startswith("file"):
        pytest.skip("a token of files may write wherever it may read")
    data = place.data()
    with talking(place.server) as servers:
        loader = loader_of(data, servers, seed=8)
        loader.data = replace(data, store=_Unwritable(data.store))
        with pytest.raises(RequestRefused) as caught:
            loader.prepare()
    assert caught.value.status in (401, 403)
    assert loader.extractions == {}


class _Unwritable:
    """A store whose rights for a server do not reach as far as writing."""

    def __init__(self, store):
        self._store = store

    def access(self, names, *, writes=(), endpoint=None, **_):
        found = self._store.access(names, endpoint=endpoint)  # an S3 server gets no PUT
        return replace(found, token="x" + found.token) if found.token else found

    def __getattr__(self, name):
        return getattr(self._store, name)


@pytest.mark.heavy
@pytest.mark.parametrize("alter", ["cut", "flip", "swap"])
def test_altered_features_are_made_anew(files, alter):
    with talking(files.server) as servers:
        right, _ = epoch_of(loader_of(files.data(), servers))
        store, kept = files.data().store, files.kept
        raw = store.get(kept[0])
        changed = {"cut": raw[:-9], "flip": raw[:500] + bytes([raw[500] ^ 1]) + raw[501:]}
        store.put(kept[0], store.get(kept[1]) if alter == "swap" else changed[alter])
        loader = loader_of(files.data(), servers)
        seen, _ = epoch_of(loader)
        assert loader.traffic.remade == 1
        assert_same(seen, right)
        whole = loader_of(files.data(), None)
        assert_same(epoch_of(whole)[0], right)
    store.put(kept[0], b"nothing of ours")
    with pytest.raises(SplitError, match="Name a server"):
        epoch_of(loader_of(files.data(), None))


@pytest.mark.heavy
def test_with_augmentation_variants_are_kept_and_come_in_turn(files):
    before = len(files.kept)
    with talking(files.server) as servers:
        with pytest.raises(ConfigError, match="--cache-variants"):
            loader_of(files.data(), servers, transforms=RANDOM)
        loader = loader_of(files.data(), servers, transforms=RANDOM, cache_variants=2)
        seen = [epoch_of(loader)[0] for _ in range(3)]
        assert [loader.extractions[epoch].made for epoch in range(3)] == [3, 3, 0]
        direct = loader_of(files.data(), servers, transforms=RANDOM, materialise=False)
        assert_same(seen[1], [*_at_epoch(direct, 1)])
    assert len(files.kept) == before + 2 * len(COUNTS)


def _at_epoch(loader, epoch):
    state = loader.state_dict()
    loader.load_state_dict({**state, "epoch": epoch})
    return epoch_of(loader)[0]


@pytest.mark.heavy
def test_two_ranks_share_what_is_to_be_made(files):
    with talking(files.server) as servers:
        made = []
        for rank in range(2):
            loader = loader_of(files.data(), servers, seed=9, rank=rank, ranks=2)
            loader.prepare()
            made.append(loader.extractions[0].made)
    assert made == [2, 1]


@pytest.mark.heavy
def test_the_disk_of_the_client_keeps_them_as_well(files, tmp_path):
    with talking(files.server) as servers:
        loader = loader_of(files.data(), servers, cache=str(tmp_path))
        received = [epoch_of(loader)[1] for _ in range(2)]
    assert received[0] > 0
    assert received[1] == 0


@pytest.mark.heavy
def test_a_request_for_part_of_an_object_stores_nothing(files):
    data = files.data()
    with talking(files.server) as servers:
        loader = loader_of(data, servers, seed=11, materialise=False)
        epoch_of(loader)  # puts the weights
        (weights,) = loader.weights.values()
        stored = data.objects[0]
        request = wire.ExtractRequest(
            data.url, stored.name, SPLIT, model="resnet18", weights=weights,
            sha256=stored.sha256, transforms=loader.transforms.to_json(),
        )  # fmt: skip
        before = files.kept
        for samples in (None, (0, 1), (1, 0), (*range(stored.count - 1),), (*range(9),)):
            asked = replace(request, samples=samples)
            access = data.access_for(asked, [features_name(asked)])
            with pytest.raises(RequestRefused) as caught:
                servers.post("/v1/materialise", wire.encode_request(asked), access)
            assert caught.value.status == 400
    assert files.kept == before


@pytest.mark.heavy
def test_features_are_not_handed_out_once_the_right_is_withdrawn(swift):
    """Bob reads Alice's container as long as she lets him."""
    alice = swift.settings("alice")
    url = "swift://lent/train"
    put_in(open_store(url, settings=alice), COUNTS)
    account = open_store(url, settings=alice).access([])
    storage_url = swift.endpoint + account.account

    def lend(reader, writer):
        lent = urllib.request.Request(f"{storage_url}/lent", method="POST")
        lent.add_header("X-Auth-Token", account.token)
        lent.add_header("X-Container-Read", reader)
        lent.add_header("X-Container-Write", writer)
        urllib.request.urlopen(lent, timeout=30).close()

    bob = "bobaccount:bob"
    settings = replace(swift.settings("bob"), swift_storage_url=storage_url)
    serve = ServeSettings(
        store="swift://", port=0, workers=1, budget="3GiB", connection=swift.server_settings()
    )
    lend(bob, bob)
    with running_server(serve) as server, talking(server.url) as servers:
        loader = loader_of(DataSet.open(url, settings), servers)
        epoch_of(loader)
        lend(bob, "")  # he may read, and no more
        with pytest.raises(AccessDenied):
            loader_of(DataSet.open(url, settings), servers, seed=5).prepare()  # puts weights
        received = loader.traffic.received_bytes
        assert epoch_of(loader)[1] > 0
        received = loader.traffic.received_bytes
        loader.prepare()
        lend("", "")
        with pytest.raises(AccessDenied):
            next(iter(loader))
    assert loader.traffic.received_bytes == received


def test_a_training_reports_what_extracting_once_took(files, tmp_path):
    settings = FineTuning(
        data=files.url, model="resnet18", batch=7, epochs=2, lr=1e-3, holdout=1,
        server=(files.server,), store=files.settings,
        loading=Loading(split=12, transforms=SMALL, materialise=True, seed=2),
    )  # fmt: skip
    summaries = []
    for name in ("first", "second"):
        directory = RunDirectory(tmp_path / name)
        heard = []
        fine_tune(settings, directory, heard.append)
        summaries.append(split_summary(directory.events()))
    first, second = (each["extraction"] for each in summaries)
    assert (first["objects_made"], first["objects_found"]) == (3, 3)  # two epochs; one is held out
    assert (second["objects_made"], second["objects_found"]) == (0, 6)
    assert first["stored_bytes"] > 0 == second["stored_bytes"]
    assert first["seconds"] > second["seconds"]
    assert summaries[0]["time_s"] > first["epoch_s"] * 2
    assert summaries[0]["received_bytes"] == summaries[1]["received_bytes"] > 0
    assert summaries[1]["loss"] == pytest.approx(summaries[0]["loss"], rel=1e-6)
    cells = [cell for column in split_table(summaries[0]).columns for cell in column.cells]
    assert any("features of 3 objects" in str(cell) for cell in cells)
