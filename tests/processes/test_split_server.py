"""A split server with real worker processes under real memory limits, and who asks it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import numpy as np
import pytest

from garfield.core.errors import ConfigError, NodeFailed, RequestRefused
from garfield.split import wire
from garfield.split.objects import pack
from garfield.split.scheduler import Batching
from garfield.split.server.memory import Rehearsal
from garfield.split.server.serving import running_server
from garfield.split.stores import Access, StoreSettings, open_store
from tests.forkservers import with_a_forkserver_of_its_own
from tests.split_server import (
    SIDE,
    ask,
    expected,
    images,
    planned_together,
    status,
    stocked,
    until,
)

pytestmark = pytest.mark.slow

COUNT = 60
LONG = tuple(range(COUNT)) * 10  # a request that takes a while: samples may be named again


@pytest.fixture(scope="module", autouse=True)
def shared_memory_of_workers():
    with_a_forkserver_of_its_own()
    yield
    with_a_forkserver_of_its_own()


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    return stocked(tmp_path_factory.mktemp("split"), ["ann", "bob"], COUNT)


@pytest.fixture(scope="module")
def server(stock):
    settings = stock.settings(receive_s=1.0, buffer="1MiB", spool="1MiB", stall_s=2.0)
    with running_server(settings) as running:
        yield running


@pytest.fixture(scope="module")
def ann(stock):
    return stock.tenants["ann"]


@pytest.fixture(scope="module")
def bob(stock):
    return stock.tenants["bob"]


def close(got, wanted):
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


# -- what is answered -------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 7, 60, 1000])
def test_features_are_those_of_the_whole_model_whatever_the_batch(server, ann, batch):
    features = ask(server.url, ann.asks(batch=batch), ann.access)
    close(features.values, expected(ann.asks(), COUNT, 0))
    assert features.labels == tuple(index % 10 for index in range(COUNT))
    assert features.trailer["cos_batch"] <= batch
    assert 0 < features.trailer["peak_bytes"] <= features.trailer["reserved_bytes"]


def test_samples_come_in_the_order_asked_for_with_their_own_randomness(server, bob):
    request = bob.asks(
        samples=(5, 59, 0, 5), first_sample_id=700, seed=9, epoch=3,
        transforms=f'[["random-crop", {SIDE}, 2], ["flip", 0.5]]',
    )  # fmt: skip
    features = ask(server.url, request, bob.access)
    close(features.values, expected(request, COUNT, 1))
    assert features.labels == (6, 0, 1, 6)
    close(features.values[0], features.values[3])


def test_with_split_0_the_transformed_images_travel(server, ann):
    request = ann.asks(split=0, weights=None)
    features = ask(server.url, request, ann.access)
    assert features.values.shape == (COUNT, 3, SIDE, SIDE)
    assert np.array_equal(features.values, expected(request, COUNT, 0))


def test_features_may_travel_smaller(server, ann):
    plain = ask(server.url, ann.asks(), ann.access)
    half = ask(server.url, ann.asks(dtype="float16"), ann.access)
    packed = ask(server.url, ann.asks(compression="zlib"), ann.access)
    assert half.values.dtype == np.float16
    np.testing.assert_allclose(half.values, plain.values, rtol=1e-2, atol=1e-2)
    close(packed.values, plain.values)
    assert packed.received_bytes < plain.received_bytes
    assert half.received_bytes < 0.6 * plain.received_bytes


def test_profiles_are_measured_once_and_told(server, ann):
    request = wire.ProfileRequest(
        ann.url, 6, (3, SIDE, SIDE), model="resnet18", weights=ann.weights
    )
    answers = []
    for _ in range(2):
        body, headers = wire.encode_request(request), {wire.ACCESS_HEADER: ann.access}
        answer = httpx.post(f"{server.url}/v1/profile", content=body, headers=headers, timeout=60)
        assert answer.status_code == 200
        answers.append(answer.json())
    assert answers[0] == answers[1]
    assert answers[0]["out_shape"] == [64, 8, 8]
    assert answers[0]["per_sample_bytes"] > 64 * 8 * 8 * 4
    assert len(answers[0]["layers"]["layer_seconds"]) == 6
    assert all(seconds > 0 for seconds in answers[0]["layers"]["layer_seconds"])


def test_a_client_can_time_the_link(server):
    answer = httpx.get(f"{server.url}/v1/bandwidth?bytes=1000001", timeout=60)
    assert len(answer.content) == 1_000_001
    for text, code in (("x", 400), ("-1", 400), ("9" * 11, 413), ("9" * 5000, 400)):
        assert httpx.get(f"{server.url}/v1/bandwidth?bytes={text}").status_code == code


# -- who may read what ------------------------------------------------------------------------


def _work_done(server):
    told = status(server.url)
    return told["devices"]["cpu0"]["served"], told["weights_fetched_bytes"]


@pytest.mark.parametrize(
    ("access", "code"),
    [
        (Access("file", token="somebody").as_header(), 401),
        ("garbage", 401),
        (Access("swift", token="t", account="/v1/AUTH_x").as_header(), 401),
    ],
)
def test_a_wrong_token_is_401_and_nothing_is_read(server, ann, access, code):
    before = _work_done(server)
    with pytest.raises(RequestRefused) as refused:
        ask(server.url, ann.asks(), access)
    assert refused.value.status == code
    assert _work_done(server) == before


def test_no_token_is_401(server, ann):
    body = wire.encode_request(ann.asks())
    for path in ("extract", "profile", "train"):
        answer = httpx.post(f"{server.url}/v1/{path}", content=body, timeout=60)
        assert (answer.status_code, answer.json()["error"]) == (401, "unauthorised")


def test_another_tenants_container_is_403_and_nothing_is_read(server, ann, bob):
    before = _work_done(server)
    with pytest.raises(RequestRefused) as refused:
        ask(server.url, ann.asks(), bob.access)
    assert refused.value.status == 403
    assert _work_done(server) == before


@pytest.mark.parametrize("path", ["/etc", "/../../etc", "/ann/../bob"])
def test_what_lies_elsewhere_is_403(server, stock, ann, path):
    data = stock.root.as_uri() + path if ".." in path else f"file://{path}"
    with pytest.raises(RequestRefused) as refused:
        ask(server.url, ann.asks(data=data, object_name="passwd"), ann.access)
    assert refused.value.status == 403


def test_weights_that_the_server_has_are_still_only_for_who_may_read_them(server, stock, ann, bob):
    from garfield.split.models import load
    from garfield.split.models.weights import put_weights

    secret = put_weights(open_store(ann.url), load("resnet18", seed=99).prefix(6)).hash
    ask(server.url, ann.asks(weights=secret), ann.access)
    fetched = _work_done(server)[1]
    with pytest.raises(RequestRefused) as refused:
        ask(server.url, bob.asks(weights=secret), bob.access)
    assert refused.value.status == 404
    ask(server.url, ann.asks(weights=secret), ann.access)
    assert _work_done(server)[1] == fetched  # and are not fetched again


# -- what is refused --------------------------------------------------------------------------


def test_an_object_that_is_not_there_is_404_by_name(server, ann):
    with pytest.raises(RequestRefused, match="part-7") as refused:
        ask(server.url, ann.asks(object_name="part-7"), ann.access)
    assert refused.value.status == 404


@pytest.mark.parametrize("damage", ["cut", "altered", "garbage", "empty"])
def test_a_damaged_object_is_refused_by_name(server, ann, damage):
    whole = pack(images(5), range(5), "uint8")
    bent = bytearray(whole)
    bent[-100] ^= 1
    data = {"cut": whole[:-10], "altered": bytes(bent), "garbage": b"x" * 500, "empty": b""}
    open_store(ann.url).put(f"damaged-{damage}", data[damage])
    with pytest.raises(RequestRefused, match=f"damaged-{damage}") as refused:
        ask(server.url, ann.asks(object_name=f"damaged-{damage}"), ann.access)
    assert refused.value.status == 422


def test_an_object_that_is_not_what_the_index_says_is_refused_by_name(server, ann):
    with pytest.raises(RequestRefused, match="part-0 was altered") as refused:
        ask(server.url, ann.asks(sha256="0" * 64), ann.access)
    assert refused.value.refusal == "broken-object"


def test_altered_weights_are_refused_by_name(server, stock):
    ann = stock.tenants["ann"]
    digest = "ab" * 32
    open_store(ann.url).put(f".garfield/weights/{digest}.safetensors", b"not these")
    with pytest.raises(RequestRefused, match=digest) as refused:
        ask(server.url, ann.asks(weights=digest), ann.access)
    assert refused.value.status == 422


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"model": "resnet19"}, 422),
        ({"split": 99}, 422),
        ({"split": 9}, 422),  # more layers than the weights are of
        ({"samples": (0, COUNT)}, 400),
        ({"transforms": "[]", "split": 1}, 400),  # the images are no 224 × 224
        ({"transforms": '[["melt", 3]]'}, 400),
        ({"transforms": '[["crop", 100000]]'}, 400),
        ({"transforms": "{"}, 400),
        ({"model": None, "graph": "{}"}, 422),
        ({"data": "s3://bucket"}, 403),
        ({"data": "nonsense"}, 403),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(server, ann, changes, code):
    with pytest.raises(RequestRefused) as refused:
        ask(server.url, ann.asks(**changes), ann.access)
    assert (refused.value.status, str(refused.value)) == (code, str(refused.value))


def test_a_request_too_large_for_any_device_is_refused_with_numbers(stock, ann):
    settings = stock.settings(budget="120MiB", workers=1)
    with (
        running_server(settings) as small,
        pytest.raises(RequestRefused, match=r"do not run in \d+ MiB") as no,
    ):
        ask(small.url, ann.asks(transforms='[["resize", 224, 224]]', batch=5000), ann.access)
    assert no.value.status == 507


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /v1/extract HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"\x00\x01\x02 nonsense\r\n\r\n", 400),
        (b"POST /v1/extract HTTP/9.9\r\n\r\n", 401),
        (b"GET /v1/status HTTP/1.1\r\nHost: x\r\nA: " + b"y" * 600_000 + b"\r\n\r\n", 400),
        (b"GET /v1/status HTTP/1.1\r\nHost: x\r\n: no name\r\n\r\n", 400),
        (
            b"POST /v1/extract HTTP/1.1\r\nHost: x\r\nX-Garfield-Access: a\r\n"
            b"Content-Length: 99999999999\r\n\r\n",
            413,
        ),
        (
            b"POST /v1/extract HTTP/1.1\r\nHost: x\r\nX-Garfield-Access: a\r\n"
            b"Content-Length: 3\r\n\r\n{,}",
            400,
        ),
    ],
)  # fmt: skip
def test_hostile_bytes_are_answered_and_the_server_goes_on(server, sent, code):
    with _connected(server.url) as stream:
        try:
            stream.sendall(sent)
            assert stream.recv(4096).split(b" ")[1] == str(code).encode()
        except ConnectionError:
            assert len(sent) > 100_000  # cut off before all was sent
    assert status(server.url)["protocol"] == 1


def test_a_body_that_grows_beyond_its_bound_is_cut_off(server, ann):
    def endless():
        for _ in range(200):
            yield b" " * 65536

    headers = {wire.ACCESS_HEADER: ann.access}
    with httpx.Client(timeout=60) as client:
        try:
            answer = client.post(f"{server.url}/v1/extract", content=endless(), headers=headers)
            assert answer.status_code == 413
        except httpx.WriteError:
            pass  # the server has closed the connection before all was sent
    assert status(server.url)["protocol"] == 1


# -- clients that are slow, or go -------------------------------------------------------------


def _connected(url):
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def test_who_does_not_finish_its_headers_is_cut_off(server):
    with _connected(server.url) as stream:
        stream.sendall(b"POST /v1/extract HTTP/1.1\r\nHost: x\r\n")
        assert stream.recv(100) == b""


def test_who_does_not_finish_its_body_is_told_408(server, ann):
    with _connected(server.url) as stream:
        head = f"POST /v1/extract HTTP/1.1\r\nHost: x\r\nX-Garfield-Access: {ann.access}\r\n"
        stream.sendall(head.encode() + b"Content-Length: 1000\r\n\r\n{")
        assert b" 408 " in stream.recv(100)


def _sent(stream, request, access, path="extract"):
    body = wire.encode_request(request)
    head = f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nX-Garfield-Access: {access}\r\n"
    stream.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def _running(server):
    return server.service.queue.running


def test_a_client_that_takes_nothing_is_cut_off_and_its_worker_freed(server, ann):
    """94 MB: more than the buffers between here and there hold."""
    request = ann.asks(split=0, samples=LONG, transforms='[["resize", 114, 114]]', batch=50)
    lost = status(server.url)["workers"]["lost"]
    with _connected(server.url) as stream:
        _sent(stream, request, ann.access)
        assert stream.recv(4)
        until(lambda: _running(server) == 1)
        until(lambda: _running(server) == 0)  # after stall_s without a byte taken
    assert status(server.url)["workers"]["lost"] == lost
    assert len(ask(server.url, ann.asks(), ann.access).values) == COUNT


def test_who_reads_slowly_keeps_no_worker_from_others_and_no_seat_free(stock, ann, bob):
    """94 MB, of which it takes a few bytes and then waits: they go to disk."""
    request = ann.asks(split=0, samples=LONG, transforms='[["resize", 114, 114]]', batch=50)
    settings = stock.settings(workers=1, stall_s=600.0, most_per_client=1)
    with running_server(settings) as server, _connected(server.url) as stream:
        _sent(stream, request, ann.access)
        assert stream.recv(4)
        until(lambda: server.service.queue.running == 0)
        assert server.service.spool.held_bytes > 10e6
        assert len(ask(server.url, bob.asks(), bob.access).values) == COUNT
        with pytest.raises(RequestRefused, match="1 requests of this tenant"):
            ask(server.url, ann.asks(), ann.access)
        taken = bytearray()
        while not taken.endswith(b"\r\n0\r\n\r\n"):
            taken += stream.recv(1 << 20)
        assert len(ask(server.url, ann.asks(), ann.access).values) == COUNT
    assert len(taken) > 90e6


def test_a_client_that_goes_away_frees_its_worker_at_once(server, ann):
    lost = status(server.url)["workers"]["lost"]
    with _connected(server.url) as stream:
        _sent(stream, ann.asks(samples=LONG), ann.access)
        until(lambda: _running(server) == 1)
    until(lambda: _running(server) == 0)
    assert status(server.url)["workers"]["lost"] == lost
    close(ask(server.url, ann.asks(), ann.access).values, expected(ann.asks(), COUNT, 0))


def test_one_that_waits_in_the_queue_and_goes_is_forgotten(server, ann):
    streams = [_connected(server.url) for _ in range(4)]
    for stream in streams:
        _sent(stream, ann.asks(samples=LONG), ann.access)
    until(lambda: server.service.queue.waiting == 2)
    for stream in streams:
        stream.close()
    until(lambda: server.service.queue.waiting == 0 and _running(server) == 0)
    assert len(server.service.pool.free("cpu0")) == 2


def test_a_measurement_ends_with_the_client_that_it_was_for(server, ann):
    """Whether it asked for features or for a profile: here it waits, as all workers are taken."""
    queue = server.service.queue

    def granted():
        return asyncio.run_coroutine_threadsafe(queue.granted(1, 1, 1), server.loop).result()

    unknown = wire.ProfileRequest(ann.url, 3, (3, SIDE, SIDE), model="alexnet")
    features = ann.asks(model="alexnet", split=2, weights=None)
    held = [granted(), granted()]
    try:
        for path, request in (("extract", features), ("profile", unknown)):
            with _connected(server.url) as stream:
                _sent(stream, request, ann.access, path)
                until(lambda: queue.waiting == 1)
            until(lambda: queue.waiting == 0)
    finally:
        for grant in held:
            server.loop.call_soon_threadsafe(queue.release, grant)
    assert len(ask(server.url, ann.asks(), ann.access).values) == COUNT


# -- workers that are lost --------------------------------------------------------------------


def test_a_worker_killed_in_the_middle_of_a_request_costs_nothing_but_time(server, ann):
    ask(server.url, ann.asks(), ann.access)  # so that what it needs has been measured
    before = status(server.url)["workers"]
    request = ann.asks(samples=LONG * 5, batch=40)  # a second's work for a fast machine
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(ask, server.url, request, ann.access)
        until(lambda: _running(server) == 1)
        (worker,) = [each for each in server.service.pool.all if each.busy]
        os.kill(worker.pid, signal.SIGKILL)  # wherever it is, the answer is the same
        features = asked.result()
    assert features.trailer["retries"] == 1
    assert features.trailer["cos_batches"] == [40, 20]
    close(features.values, expected(request, COUNT, 0))
    until(lambda: len(server.service.pool.all) == 2)
    after = status(server.url)["workers"]
    assert (after["lost"], after["started"]) == (before["lost"] + 1, before["started"] + 1)
    assert after["lost_by_memory"] == before["lost_by_memory"]


@pytest.mark.heavy
def test_one_that_needs_more_than_was_predicted_is_killed_and_tried_with_half(server, ann):
    book, service = server.service.book, server.service
    request = ann.asks(samples=LONG[:160], transforms='[["resize", 80, 80]]', batch=160)
    features = ask(server.url, request, ann.access)
    prefix = wire.Model(model=request.model, weights=request.weights)
    weights = service.weights._files[request.weights]
    rehearsal = Rehearsal.of_prefix(prefix, request.split, (3, 80, 80), weights)
    real = book._known[rehearsal.key]
    lie = replace(real, wider=0.25)
    before = status(server.url)["workers"]
    book.put(rehearsal.key, lie)
    again = ask(server.url, request, ann.access)
    after = status(server.url)["workers"]
    assert after["lost_by_memory"] > before["lost_by_memory"]
    assert again.trailer["retries"] == after["lost_by_memory"] - before["lost_by_memory"]
    assert again.trailer["cos_batches"] == [160, 80, 40, 20][: again.trailer["retries"] + 1]
    close(again.values, features.values)
    assert book._known[rehearsal.key].line.per_sample_bytes > lie.line.per_sample_bytes
    until(lambda: len(service.pool.all) == 2)


def test_idle_workers_that_die_are_replaced(server, ann):
    for worker in [*server.service.pool.all]:
        os.kill(worker.pid, signal.SIGKILL)
    features = ask(server.url, ann.asks(), ann.access)
    close(features.values, expected(ann.asks(), COUNT, 0))
    until(lambda: len(server.service.pool.all) == 2)


def test_a_worker_that_cannot_be_started_for_long_is_tried_again(stock, ann, monkeypatch):
    """As on a machine that has no processes left for a while."""
    monkeypatch.setattr("garfield.split.server.workers.PAUSES_S", (0.01,))
    with running_server(stock.settings(workers=1)) as server:
        pool, tried = server.service.pool, []
        forks = pool._fork

        def short_of_processes(*given):
            tried.append(given)
            if len(tried) <= 12:
                raise BlockingIOError("Resource temporarily unavailable")
            forks(*given)

        monkeypatch.setattr(pool, "_fork", short_of_processes)
        os.kill(pool.all[0].pid, signal.SIGKILL)
        features = ask(server.url, ann.asks(), ann.access)
    assert len(tried) == 13
    close(features.values, expected(ann.asks(), COUNT, 0))


def test_workers_are_recycled_after_so_many_requests(stock, ann):
    with running_server(stock.settings(workers=1, recycle_after=2)) as server:
        first = server.service.pool.all[0].pid
        for _ in range(4):
            ask(server.url, ann.asks(), ann.access)
        until(lambda: len(server.service.pool.free("cpu0")) == 1)
        assert server.service.pool.record.recycled >= 2
        assert server.service.pool.all[0].pid != first
        assert server.service.pool.record.lost == 0


# -- many at once -----------------------------------------------------------------------------


def test_requests_are_spread_evenly_over_devices(stock, ann):
    settings = stock.settings(devices=2, workers=2, batching=Batching(window_fraction=1.0))
    with running_server(settings) as server:
        ask(server.url, ann.asks(), ann.access)
        served = {name: record.served for name, record in server.service.queue.records.items()}
        with ThreadPoolExecutor(4) as threads:
            with planned_together(server, 4):
                many = [
                    threads.submit(ask, server.url, ann.asks(samples=LONG[:300]), ann.access)
                    for _ in range(4)
                ]
            assert all(len(each.result().values) == 300 for each in many)
        for name, record in server.service.queue.records.items():
            assert record.served - served[name] == 2
            assert record.peak_running == 2


@pytest.mark.heavy
def test_ten_tenants_at_once_under_a_budget_that_fits_six(tmp_path):
    """All finish, none is killed, the budget is used, and never exceeded."""
    names = [f"tenant-{number}" for number in range(10)]
    stock = stocked(tmp_path, names, 100)
    transforms = '[["resize", 64, 64]]'
    batching = Batching(window_fraction=1.0)
    first = stock.tenants[names[0]]
    with running_server(stock.settings(workers=10, budget="2GiB")) as server:
        ask(server.url, first.asks(transforms=transforms), first.access)
        service = server.service
        ((what, measured),) = service.book._known.items()
        base, per_sample = measured.needs(100 * 48 * 48 * 3, 25)
        idle = service.pool.idle_bytes("cpu0")
    budget = idle + int(6.5 * (base + 25 * per_sample))
    settings = stock.settings(workers=10, budget=f"{budget}B", batching=batching)
    with running_server(settings) as server:
        server.service.book.put(what, measured)  # by which the budget fits six
        ask(server.url, first.asks(transforms=transforms), first.access)

        def tenants_turn(name):
            tenant = stock.tenants[name]
            request = tenant.asks(transforms=transforms, samples=tuple(range(100)))
            return ask(server.url, request, tenant.access)

        with ThreadPoolExecutor(10) as threads, planned_together(server, 10):
            turns = [threads.submit(tenants_turn, name) for name in names]
        answers = [turn.result() for turn in turns]
        told, memory = status(server.url), server.service.pool.devices["cpu0"]
        device = told["devices"]["cpu0"]
        assert device["limited_by"] != "RLIMIT_DATA" or not hasattr(memory, "directory")
        for number, features in enumerate(answers):
            request = stock.tenants[names[number]].asks(transforms=transforms)
            close(features.values, expected(request, 100, number))
            assert features.trailer["retries"] == 0
            assert features.trailer["peak_bytes"] <= features.trailer["reserved_bytes"]
            assert features.trailer["cos_batch"] >= 25
        assert told["workers"]["lost"] == 0
        assert memory.kills == 0
        assert 5 <= device["peak_running"] <= 7  # what idle workers hold differs between starts
        assert 0.9 * budget <= device["peak_reserved_bytes"] <= budget
        assert device["peak_bytes"] <= budget
        assert max(each.trailer["waited_s"] for each in answers) > 0.0


# -- how it starts and ends -------------------------------------------------------------------


def test_a_queue_that_is_full_says_so_and_to_try_elsewhere(stock, ann):
    with running_server(stock.settings(workers=1, most_waiting=1)) as server:
        streams = [_connected(server.url) for _ in range(2)]
        _sent(streams[0], ann.asks(samples=LONG), ann.access)
        until(lambda: _running(server) == 1 and server.service.book.made == 1)
        _sent(streams[1], ann.asks(samples=LONG), ann.access)
        until(lambda: server.service.queue.waiting == 1)
        with pytest.raises(RequestRefused, match="Try again") as refused:
            ask(server.url, ann.asks(), ann.access)
        assert wire.Refusal.named(refused.value.refusal).passes
        for stream in streams:
            stream.close()


def _asks_for_a_profile(server, tenant):
    body = wire.encode_request(wire.ProfileRequest(tenant.url, 1, (3, SIDE, SIDE), model="alexnet"))
    headers = {wire.ACCESS_HEADER: tenant.access}
    return httpx.post(f"{server.url}/v1/profile", content=body, headers=headers).status_code


def test_tenants_of_one_address_are_limited_each_by_itself(server, stock, ann, bob):
    """And measuring the link takes no seat of those who work."""
    with running_server(stock.settings(workers=1, most_per_client=1)) as limited:
        stream = _connected(limited.url)
        _sent(stream, ann.asks(samples=LONG), ann.access)
        until(lambda: _running(limited) == 1)
        with pytest.raises(RequestRefused, match="1 requests of this tenant"):
            ask(limited.url, ann.asks(), ann.access)
        assert _asks_for_a_profile(limited, ann) == wire.Refusal.BUSY.status
        assert httpx.get(f"{limited.url}/v1/bandwidth?bytes=10").status_code == 200
        with ThreadPoolExecutor(1) as threads:
            of_bob = threads.submit(ask, limited.url, bob.asks(), bob.access)
            until(lambda: limited.service.queue.waiting == 1)  # and was not refused
            stream.close()
            assert len(of_bob.result().values) == COUNT


def test_beyond_loopback_a_server_wants_a_certificate(stock):
    with pytest.raises(ConfigError, match="tokens need TLS"):
        stock.settings(host="0.0.0.0")


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_certificate_that_is_none_is_refused_by_name(stock, tmp_path, content):
    path = tmp_path / "certificate.pem"
    if content is not None:
        path.write_text(content)
    settings = stock.settings(certificate=str(path), certificate_key=str(path), workers=1)
    with pytest.raises(ConfigError, match=r"certificate\.pem"), running_server(settings):
        pass


def test_a_budget_that_holds_no_worker_is_refused_with_numbers(stock):
    with (
        pytest.raises((ConfigError, NodeFailed), match=r"budget.*2 MiB"),
        running_server(stock.settings(budget="2MiB", workers=1)),
    ):
        pass


@pytest.mark.parametrize(
    ("store", "flag"),
    [
        ("file:///photos", "--file-tokens"),
        ("swift://", "--swift-endpoint"),
        ("s3://b", "--s3-endpoint"),
    ],
)
def test_a_server_that_could_read_for_nobody_says_what_it_wants(stock, store, flag):
    settings = stock.settings(store=store, connection=StoreSettings())
    with pytest.raises(ConfigError, match=f"wants {flag}"), running_server(settings):
        pass


def test_a_folder_with_a_space_in_its_name_is_served(tmp_path):
    spaced = stocked(tmp_path / "our photos", ["ann"], count=4)
    ann = spaced.tenants["ann"]
    with running_server(spaced.settings(workers=1)) as server:
        assert len(ask(server.url, ann.asks(), ann.access).values) == 4


def test_it_speaks_tls_with_a_certificate(stock, ann, tmp_path):
    certificate, key = _self_signed(tmp_path)
    settings = stock.settings(certificate=str(certificate), certificate_key=str(key), workers=1)
    with running_server(settings) as server:
        import ssl

        believing = ssl.create_default_context(cafile=str(certificate))
        assert server.url.startswith("https://")
        features = ask(server.url, ann.asks(), ann.access, verify=believing)
        close(features.values, expected(ann.asks(), COUNT, 0))


def _self_signed(directory):
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, private = directory / "cert.pem", directory / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, private
