"""The client against a real Swift, through both of its APIs, from another port than the server."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from garfield.core.errors import ObjectMissing, RequestRefused
from garfield.split.client.data_set import DataSet
from garfield.split.client.loader import SplitLoader
from garfield.split.embedded.swift import EmbeddedSwift
from garfield.split.limited_link import LimitedLink
from garfield.split.models import load
from garfield.split.plan_view import PlanSettings, view
from garfield.split.server.serving import running_server
from garfield.split.server.settings import ServeSettings
from garfield.split.settings import Loading
from garfield.split.stores import open_store
from tests.marks import heavy_but
from tests.split_data import RANDOM, put_in, talking

pytest.importorskip("swift", reason="the extra split-demo brings it")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COUNTS = (8, 5)


@pytest.fixture(scope="module")
def swift(tmp_path_factory):
    with EmbeddedSwift(tmp_path_factory.mktemp("swift")) as swift:
        put_in(open_store("swift://clothes/train", settings=swift.settings("alice")), COUNTS)
        yield swift


def served(swift, scheme):
    settings = ServeSettings(
        store=f"{scheme}://", port=0, workers=2, budget="3GiB", connection=swift.server_settings()
    )
    return running_server(settings)


def losses(loader):
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(loader.tail.trained.parameters(), 1e-3, 0.9)
    found = []
    for features, labels in loader:
        loss = functional.cross_entropy(loader.tail(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


def loader_of(data, servers, split):
    loading = Loading(split=split, transforms=RANDOM, seed=3)
    model = load("resnet18", classes=10, seed=1)
    return SplitLoader(data, model, servers, batch=6, loading=loading)


@pytest.mark.parametrize("scheme", heavy_but(["swift", "s3"], "swift"))
def test_split_and_streaming_agree_over_a_link_of_the_clients_own(swift, scheme):
    url, port = f"{scheme}://clothes/train", swift.ports["proxy"]
    with LimitedLink(200e6) as link, served(swift, scheme) as server:
        far = f"http://127.0.0.1:{link.to('127.0.0.1', port)}"
        near = int(server.url.rpartition(":")[2])
        settings = replace(
            swift.settings("alice"), swift_auth_url=f"{far}/auth/v1.0", s3_endpoint=far
        )
        data = DataSet.open(url, settings, swift.endpoint if scheme == "s3" else None)
        with talking(f"http://127.0.0.1:{link.to('127.0.0.1', near)}") as servers:
            split, streamed = (loader_of(data, servers, at) for at in (6, 0))
            np.testing.assert_allclose(losses(split), losses(streamed), rtol=2e-5)
        assert link.down_bytes > split.traffic.received_bytes + streamed.traffic.received_bytes


@pytest.mark.heavy
def test_a_plan_for_data_in_a_store_has_its_sizes_and_the_times_of_its_server(swift):
    with served(swift, "s3") as server:
        found = view(
            PlanSettings(
                data="s3://clothes/train", model="resnet18", batch=100, egress=0.1,
                bandwidth="100Mbps", server=(server.url,), store=swift.settings("alice"),
            )
        )  # fmt: skip
    store = open_store("swift://clothes/train", settings=swift.settings("alice"))
    stored = sum(store.size(f"part-{number:03}") for number in range(len(COUNTS)))
    assert found.server_timed
    assert found.samples == sum(COUNTS)
    assert found.stored_bytes == pytest.approx(stored / sum(COUNTS))
    assert found.rows[0].epoch_cost == pytest.approx(0.1 * stored / 1e9)
    assert all(row.iteration_s > 0 for row in found.rows if row.frozen)
    assert found.split == 0  # JPEGs of a kilobyte: nothing is smaller
    assert found.advice.startswith("Do not use this here")


def test_another_tenant_reads_nothing_by_either_way(swift):
    with served(swift, "swift") as server, talking(server.url) as servers:
        with pytest.raises(ObjectMissing):  # of that name, in an account of his own
            DataSet.open("swift://clothes/train", swift.settings("bob"))
        alices = DataSet.open("swift://clothes/train", swift.settings("alice"))
        bobs = open_store("swift://clothes/train", settings=swift.settings("bob"))
        loader = loader_of(alices, servers, 6)
        token = bobs.access([]).token
        mixed = replace(alices.store.access([]), token=token)  # her account, his token
        loader.data = replace(alices, store=_Borrowed(alices.store, mixed))
        with pytest.raises(RequestRefused) as caught:
            next(iter(loader))
    assert caught.value.status in (401, 403)
    assert loader.traffic.received_bytes == 0


class _Borrowed:
    """Somebody's store, with rights that are not theirs."""

    def __init__(self, store, access):
        self._store, self._access = store, access

    def access(self, names, **_):
        return self._access

    def __getattr__(self, name):
        return getattr(self._store, name)
