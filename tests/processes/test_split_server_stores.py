"""A split server beside a real Swift, through its own API and through S3's: who may read what."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from garfield.core.errors import RequestRefused
from garfield.split.embedded import EmbeddedSwift
from garfield.split.objects import pack
from garfield.split.server.serving import running_server
from garfield.split.server.settings import ServeSettings
from garfield.split.server.workers import load_ahead
from garfield.split.stores import Access, open_store
from garfield.split.wire import ExtractRequest, Refusal
from tests.split_server import MODEL, SPLIT, TRANSFORMS, Transforms, ask, expected, images, status

pytestmark = pytest.mark.slow

COUNT = 20


@pytest.fixture(scope="module")
def swift(tmp_path_factory):
    load_ahead()
    with EmbeddedSwift(tmp_path_factory.mktemp("swift")) as running:
        yield running


@pytest.fixture(scope="module")
def weights(swift):
    """Each of two tenants has a container with an object and the weights."""
    from garfield.split.models import load
    from garfield.split.models.weights import put_weights

    prefix = load(MODEL, seed=3).prefix(SPLIT)
    for number, (name, container) in enumerate([("alice", "photos"), ("bob", "pictures")]):
        store = open_store(f"swift://{container}/set", settings=swift.settings(name))
        store.put("part-0", pack(images(COUNT, number), range(COUNT), "jpeg"))
        store.put("raw", pack(images(COUNT, number), range(COUNT), "uint8"))
        digest = put_weights(store, prefix).hash
    return digest


@pytest.fixture(scope="module")
def servers(swift):
    with ExitStack() as stack:
        yield {
            scheme: stack.enter_context(
                running_server(
                    ServeSettings(
                        store=f"{scheme}://", port=0, workers=1, budget="400MiB",
                        connection=swift.server_settings(),
                    )
                )
            )
            for scheme in ("swift", "s3")
        }  # fmt: skip


@pytest.fixture(params=["swift", "s3"])
def scheme(request):
    return request.param


def _request(scheme, weights, container="photos"):
    return ExtractRequest(
        f"{scheme}://{container}/set", "raw", SPLIT, model=MODEL, weights=weights,
        transforms=Transforms.parse(TRANSFORMS).to_json(), batch=100,
    )  # fmt: skip


def _access(swift, user, url, names, **options):
    return open_store(url, settings=swift.settings(user)).access(names, **options)


def _names(weights):
    return ["raw", "part-0", f".garfield/weights/{weights}.safetensors"]


def test_features_come_from_the_tenants_own_container(swift, servers, scheme, weights):
    request = _request(scheme, weights)
    access = _access(swift, "alice", request.data, _names(weights)).as_header()
    features = ask(servers[scheme].url, request, access)
    np.testing.assert_allclose(features.values, expected(request, COUNT, 0), rtol=1e-4, atol=1e-5)
    jpeg = ask(servers[scheme].url, replace(request, object_name="part-0"), access)
    assert jpeg.values.shape == features.values.shape


def _work_done(server):
    told = status(server.url)
    return told["devices"]["cpu0"]["served"], told["weights_fetched_bytes"]


def test_a_wrong_token_is_401_and_nothing_is_read(swift, servers, weights):
    request = _request("swift", weights)
    right = _access(swift, "alice", request.data, _names(weights))
    wrong = replace(right, token="AUTH_tk" + "0" * 32)
    before = _work_done(servers["swift"])
    with pytest.raises(RequestRefused) as refused:
        ask(servers["swift"].url, request, wrong.as_header())
    assert refused.value.status == 401
    assert _work_done(servers["swift"]) == before


def test_another_tenants_container_is_403_and_nothing_is_read(swift, servers, weights):
    """Bob's token is good, but not for Alice's account, which he may well name."""
    request = _request("swift", weights)
    alices = _access(swift, "alice", request.data, _names(weights))
    bobs = _access(swift, "bob", "swift://pictures/set", _names(weights))
    before = _work_done(servers["swift"])
    with pytest.raises(RequestRefused) as refused:
        ask(servers["swift"].url, request, replace(bobs, account=alices.account).as_header())
    assert refused.value.status == 403
    assert _work_done(servers["swift"]) == before


def test_what_was_not_signed_is_403_and_nothing_is_read(swift, servers, weights):
    url, server = "s3://photos/set", servers["s3"]
    before = _work_done(server)
    alices = _access(swift, "alice", url, _names(weights))
    bobs = _access(swift, "bob", url, _names(weights))  # signed by Bob for Alice's bucket
    some = replace(alices, reads={"part-0": alices.reads["part-0"]})
    forged = replace(
        alices, reads={name: link[:-4] + "0000" for name, link in alices.reads.items()}
    )
    elsewhere = replace(
        alices,
        reads={
            name: link.replace(swift.endpoint, "http://127.0.0.1:1")
            for name, link in alices.reads.items()
        },
    )
    # buckets of Swift's S3 belong to accounts: to Bob, there is none of that name
    for access, code in ((bobs, 404), (some, 403), (forged, 403), (elsewhere, 403)):
        with pytest.raises(RequestRefused) as refused:
            ask(server.url, _request("s3", weights), access.as_header())
        assert refused.value.status == code
    assert _work_done(server) == before


def test_a_token_for_one_kind_of_store_opens_no_other(swift, servers, weights):
    access = Access("file", token="x").as_header()
    with pytest.raises(RequestRefused) as refused:
        ask(servers["swift"].url, _request("swift", weights), access)
    assert refused.value.status == 401


def test_a_store_that_does_not_answer_is_worth_another_try(swift, weights):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    connection = replace(swift.server_settings(), swift_endpoint=f"http://127.0.0.1:{port}")
    settings = ServeSettings(
        store="swift://", port=0, workers=1, budget="400MiB", connection=connection
    )
    request = _request("swift", weights)
    access = _access(swift, "alice", request.data, _names(weights)).as_header()
    with running_server(settings) as server, pytest.raises(RequestRefused) as refused:
        ask(server.url, request, access)
    assert refused.value.status == 502
    assert Refusal.named(refused.value.refusal).passes
