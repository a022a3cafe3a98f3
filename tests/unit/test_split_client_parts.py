"""The parts of a split client, each by itself: work ahead, servers, bandwidth, cache."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue

import numpy as np
import pytest

from garfield.core.errors import ConfigError, RequestRefused, SplitError
from garfield.split import wire
from garfield.split.client import bandwidth
from garfield.split.client.ahead import Ahead
from garfield.split.client.cache import FeatureCache, key_of
from garfield.split.client.server_speed import ServerSpeed, speed_of
from garfield.split.client.servers import Servers, ServerSettings

REQUEST = wire.ExtractRequest("file:///data", "part-0", 3, model="alexnet", samples=(0, 1))
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


# -- work done ahead ----------------------------------------------------------------------


def test_answers_come_in_order_however_long_each_takes():
    first_may_end = threading.Event()

    def work(number):
        if number == 0:
            assert first_may_end.wait(10)
        elif number == 3:
            first_may_end.set()
        return number

    with Ahead(threads=4) as ahead:
        assert list(ahead.run(work, range(20), depth=4)) == list(range(20))


def test_no_more_is_asked_than_the_depth_allows():
    asked, taken = [], 0
    with Ahead(threads=8) as ahead:
        for _ in ahead.run(asked.append, range(30), depth=5):
            taken += 1
            assert len(asked) <= taken + 5


def test_an_error_comes_where_its_answer_would_have_been():
    def work(number):
        if number == 2:
            raise SplitError("no")
        return number

    got = []
    with Ahead(threads=3) as ahead, pytest.raises(SplitError, match="no"):
        got.extend(ahead.run(work, range(9), depth=3))
    assert got == [0, 1]


def test_a_consumer_that_stops_leaves_nothing_running():
    begun = []
    with Ahead(threads=1) as ahead:
        answers = ahead.run(begun.append, range(100), depth=10)
        next(answers)
        answers.close()
    assert len(begun) <= 11


# -- servers ------------------------------------------------------------------------------


@contextmanager
def server(*answers):
    """A server that answers one POST after the other by these functions of its handler."""
    left, seen = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.headers.get(wire.ACCESS_HEADER), wire.decode_request(body)))
            (left.pop(0) if left else whole)(self)

        def do_GET(self):  # its status
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}", seen
        finally:
            http.shutdown()
            thread.join()


def whole(handler):
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.writelines(wire.encode_features(VALUES, (7, 8), {"cos_batch": 2}))


def cut_off(handler):
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b"".join(wire.encode_features(VALUES, (7, 8), {}))[:60])


def altered(handler):
    handler.send_response(200)
    handler.end_headers()
    stream = bytearray(b"".join(wire.encode_features(VALUES, (7, 8), {})))
    stream[-40] ^= 1
    handler.wfile.write(stream)


def another_shape(handler):
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.writelines(wire.encode_features(VALUES.T.copy(), (7, 8, 9), {}))


def refusing(refusal):
    def answer(handler):
        handler.send_response(refusal.status)
        handler.end_headers()
        handler.wfile.write(wire.as_body(refusal.error(f"{refusal.word}, with reasons")))

    return answer


def asked(urls, give_up_s=10.0):
    servers = Servers(urls, ServerSettings(give_up_s=give_up_s))
    try:
        return servers.extract(REQUEST, "token", (3,), 2), servers
    finally:
        servers.close()


def test_features_arrive_as_they_were_sent_with_the_users_access():
    with server() as (url, seen):
        features, servers = asked([url])
    np.testing.assert_array_equal(features.values, VALUES)
    assert features.labels == (7, 8)
    assert features.trailer["cos_batch"] == 2
    assert seen == [("token", REQUEST)]
    assert servers.retries == 0
    assert servers.received_bytes == features.received_bytes > VALUES.nbytes


@pytest.mark.parametrize("broken", [cut_off, altered, another_shape, refusing(wire.Refusal.BUSY)])
def test_what_breaks_off_or_is_altered_is_asked_for_again(broken):
    with server(broken, broken) as (url, seen):
        features, servers = asked([url])
    np.testing.assert_array_equal(features.values, VALUES)
    assert servers.retries == 2
    assert len(seen) == 3


def test_another_server_answers_when_one_is_gone():
    with server() as (gone, _):
        pass
    with server() as (here, seen):
        for _ in range(3):
            features, _servers = asked([gone, here])
            np.testing.assert_array_equal(features.values, VALUES)
    assert len(seen) == 3


def test_a_server_that_failed_is_asked_last():
    with server() as (gone, _):
        pass
    with server() as (here, _):
        servers = Servers([gone, here])
        for _ in range(6):
            servers.extract(REQUEST, "token", (3,), 2)
        servers.close()
    assert servers.retries <= 1


def test_a_server_that_failed_is_asked_again_after_a_while():
    now, busy = [0.0], refusing(wire.Refusal.BUSY)
    with server() as (first, _), server(busy, busy) as (second, seen):
        servers = Servers([first, second], clock=lambda: now[0])
        asked_second = []
        for now[0] in (0.0, 0.5, 1.5, 3.0, 4.0, 4.5):
            before = len(seen)
            for _ in range(2):  # a turn for each
                servers.extract(REQUEST, "token", (3,), 2)
            asked_second.append(len(seen) - before)
        servers.close()
    # it fails, is let off for 1 s, fails again, is let off for 2 s, and is as good as the other
    assert asked_second == [1, 0, 1, 0, 1, 1]
    assert servers.retries == 2


@contextmanager
def hung_server():
    """One that takes requests and answers none: the first line of each, and what ends them."""
    lines, ended = Queue(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def handle(self):
            lines.put(self.rfile.readline().decode().rpartition(" ")[0])
            ended.wait(60)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}", lines, ended
        finally:
            ended.set()
            http.shutdown()
            thread.join()


def test_a_server_that_hangs_is_asked_for_its_status_before_it_is_taken_back(monkeypatch):
    monkeypatch.setattr("garfield.split.client.servers._STATUS_S", 0.1)
    now = [0.0]
    with server() as (here, seen), hung_server() as (hung, lines, _):
        settings = ServerSettings(answer_timeout_s=0.3)
        servers = Servers([hung, here], settings, clock=lambda: now[0])
        for now[0] in (0.0, 100.0, 200.0):
            for _ in range(4):
                servers.extract(REQUEST, "token", (3,), 2)
        servers.close()
        asked_hung = [lines.get() for _ in range(lines.qsize())]
    assert asked_hung == ["POST /v1/extract", "GET /v1/status", "GET /v1/status"]
    assert len(seen) == 12


def test_others_go_on_while_one_waits_for_a_hung_servers_status():
    now = [0.0]
    with server() as (here, seen), hung_server() as (hung, lines, ended):
        settings = ServerSettings(answer_timeout_s=0.3)
        servers = Servers([hung, here], settings, clock=lambda: now[0])
        while lines.empty():
            servers.extract(REQUEST, "token", (3,), 2)
        lines.get()
        now[0], before = 100.0, len(seen)
        with ThreadPoolExecutor(1) as threads:
            prober = threads.submit(servers.extract, REQUEST, "token", (3,), 2)
            assert lines.get(timeout=60) == "GET /v1/status"
            for _ in range(4):
                servers.extract(REQUEST, "token", (3,), 2)
            assert len(seen) == before + 4
            assert lines.empty()
            ended.set()
            prober.result()
        servers.close()
    assert len(seen) == before + 5


@pytest.mark.parametrize("refusal", [each for each in wire.Refusal if not each.passes])
def test_a_refusal_that_stays_is_raised_at_once(refusal):
    with server(refusing(refusal)) as (url, seen):
        with pytest.raises(RequestRefused, match="with reasons") as caught:
            asked([url])
        assert len(seen) == 1
    assert caught.value.refusal == refusal.word


def test_when_no_server_answers_the_error_names_each_and_what_it_did():
    with server() as (gone, _):
        pass
    busy_server = server(*[refusing(wire.Refusal.BUSY)] * 50)
    with busy_server as (busy, _), pytest.raises(SplitError) as caught:
        asked([gone, busy], give_up_s=0.3)
    assert gone in str(caught.value)
    assert f"{busy}: busy, with reasons" in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://x", "localhost:80", "http://10.0.0.1:80", "http://store"])
def test_a_token_is_never_sent_in_the_clear_to_another_machine(url):
    with pytest.raises(ConfigError):
        Servers([url])


@pytest.mark.parametrize(
    "url",
    ["http://localhost:abc", "http://[::1", "http://localhost:0", "localhost:8077", "http://"],
)
def test_what_is_no_address_of_a_server_is_refused(url):
    with pytest.raises(ConfigError, match="named as https://host:port"):
        Servers([url])


def lines_of(*pieces):
    def answer(handler):
        handler.send_response(200)
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(piece)

    return answer


def test_a_long_answer_comes_from_the_first_server_that_begins_it():
    with server(refusing(wire.Refusal.BUSY), lines_of(b"one\ntw", b"o\n")) as (url, seen):
        servers = Servers(["http://127.0.0.1:1", url], ServerSettings(give_up_s=10.0))
        body = wire.encode_request(REQUEST)
        assert [*servers.lines("/v1/train", body, "token")] == [b"one", b"two"]
        assert len(seen) == 2
        servers.close()


def test_plain_http_may_be_allowed_and_https_always_is():
    Servers(["http://10.0.0.1:80"], ServerSettings(server_plain_http=True)).close()
    Servers(["https://example.org", "http://[::1]:3", "http://localhost:3"]).close()


# -- bandwidth ----------------------------------------------------------------------------


@pytest.mark.parametrize("mbps", [0.5, 5, 150, 10_000])
def test_bandwidth_is_measured_on_enough_bytes_and_no_more(mbps):
    asked_for = []

    def probe(burst, count):
        asked_for.append(burst + count)
        return 8 * count / (mbps * 1e6)

    found = bandwidth.measure(probe)
    assert found.bps == pytest.approx(mbps * 1e6)
    assert found.bytes == sum(asked_for)
    assert found.seconds < 3 * bandwidth.ENOUGH_S + 8 * bandwidth.LEAST_BYTES / (mbps * 1e6)


def test_a_new_measurement_differs_beyond_noise_only():
    link = bandwidth.Bandwidth(100e6, 1, 1.0)
    assert link.differs(None)
    assert not bandwidth.Bandwidth(110e6, 1, 1.0).differs(link)
    assert bandwidth.Bandwidth(50e6, 1, 1.0).differs(link)


@pytest.mark.parametrize(
    ("text", "bps"),
    [("1Gbps", 1e9), ("150 Mbps", 150e6), ("64kbps", 64e3), ("0.05gbps", 5e7), ("9600", 9600.0)],
)
def test_bandwidths_are_written_as_people_write_them(text, bps):
    assert bandwidth.parse_bandwidth(text) == bps


@pytest.mark.parametrize("text", ["", "fast", "-1Mbps", "0", "nan", "1e999"])
def test_what_is_no_bandwidth_is_refused(text):
    with pytest.raises(ConfigError, match="1Gbps"):
        bandwidth.parse_bandwidth(text)


# -- a server's speed -----------------------------------------------------------------------


def test_a_servers_speed_is_its_own_whether_its_workers_share_a_core_or_not():
    """Four requests of 32 samples, two at a time; each needs 1 s of a core alone."""
    work = {"read": 0.1, "decode": 0.1, "forward": 0.8}
    one_core = speed_of([{what: 2 * s for what, s in work.items()}] * 4, 128, took_s=4.0)
    two_cores = speed_of([work] * 4, 128, took_s=2.0)
    one_by_one = speed_of([work] * 4, 128, took_s=4.0)  # memory for one at a time, say
    assert one_core.forward_s == pytest.approx(0.8 * 4 / 128)
    assert two_cores.forward_s == pytest.approx(0.8 * 2 / 128)
    assert one_by_one.forward_s == pytest.approx(0.8 * 4 / 128)
    assert one_core.prepare_s == pytest.approx(0.2 * 4 / 128)


def test_a_server_that_tells_no_times_has_no_speed():
    assert speed_of([{}] * 4, 128, took_s=1.0) == ServerSpeed()


# -- cache --------------------------------------------------------------------------------


def test_rows_come_back_as_they_were_written_also_in_parts(tmp_path):
    rows = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    cache = FeatureCache(tmp_path)
    cache.write("k", 5, [3, 1], rows[[3, 1]], [30, 10])
    FeatureCache(tmp_path).write("k", 5, [0], rows[[0]], [0])
    found = FeatureCache(tmp_path).read("k", [0, 1, 2, 3, 4])
    assert {index: label for index, (_, label) in found.items()} == {0: 0, 1: 10, 3: 30}
    for index, (row, _) in found.items():
        np.testing.assert_array_equal(row, rows[index])
    assert FeatureCache(tmp_path).read("other", [0]) == {}


def test_a_row_that_was_altered_on_the_disk_counts_as_absent(tmp_path):
    cache = FeatureCache(tmp_path)
    cache.write("k", 2, [0, 1], np.ones((2, 4), np.float32), [0, 1])
    content = bytearray((tmp_path / "k.npy").read_bytes())
    content[-1] ^= 1
    (tmp_path / "k.npy").write_bytes(content)
    assert list(cache.read("k", [0, 1])) == [0]
    (tmp_path / "k.npy").write_bytes(b"nonsense")
    assert cache.read("k", [0, 1]) == {}
    (tmp_path / "k.json").write_text("[1, 2]")
    assert cache.read("k", [0, 1]) == {}


def test_a_cache_that_cannot_be_written_is_given_up_and_the_run_goes_on(tmp_path):
    cache = FeatureCache(tmp_path)
    cache.write("k", 2, [0], np.ones((1, 4), np.float32), [0])
    cache.write("k", 2, [1], np.ones((1, 5), np.float32), [0])  # not what is there
    assert "not float32" in cache.problem
    cache.write("k2", 1, [0], np.ones((1, 4), np.float32), [0])
    assert cache.read("k2", [0]) == {}


def test_everything_a_feature_depends_on_changes_its_key():
    parts = {"object": "a", "sha256": "b", "split": 3, "variant": None}
    keys = {key_of(parts)} | {key_of(parts | {name: "other"}) for name in parts}
    assert len(keys) == 1 + len(parts)
    assert key_of(parts) == key_of(dict(reversed(parts.items())))
