"""The embedded Swift: real servers that come, keep what they hold, and go with their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from garfield.core.errors import StoreUnreachable, UnknownName
from garfield.split.embedded import EmbeddedSwift
from garfield.split.embedded.swift_process import LocalCache
from garfield.split.objects import open_object, read_index
from garfield.split.objects.packing import Packing, put_arrays
from garfield.split.stores import open_store

pytestmark = pytest.mark.slow

OWNER = """
import sys, time
from pathlib import Path
from garfield.split.embedded import EmbeddedSwift

if __name__ == "__main__":
    with EmbeddedSwift(Path(sys.argv[1])) as swift:
        print(*swift.pids.values(), flush=True)
        time.sleep(600)
"""


@pytest.mark.heavy
def test_a_swift_started_again_still_has_its_objects(tmp_path: Path) -> None:
    import numpy as np

    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3), np.uint8)
    with EmbeddedSwift(tmp_path) as swift:
        store = open_store("swift://photos/train", settings=swift.settings("alice"))
        packing = Packing(images_per_object=12)
        index = put_arrays(store, images, np.arange(30), [str(i) for i in range(30)], packing)
        pids = list(swift.pids.values())
        with pytest.raises(UnknownName):
            swift.settings("mallory")
    assert not any(psutil.pid_exists(pid) for pid in pids)
    with pytest.raises(StoreUnreachable):
        store.get("index.json")
    with EmbeddedSwift(tmp_path) as swift:
        store = open_store("s3://photos/train", settings=swift.settings("alice"))
        assert read_index(store) == index
        for entry in index.objects:
            open_object(entry.name, store.get(entry.name), entry.sha256)


def test_a_swift_ends_with_its_owner_however_that_ends(tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    owner = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "swift")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert owner.stdout is not None
    with owner:
        servers = [psutil.Process(int(pid)) for pid in owner.stdout.readline().split()]
        assert len(servers) == 4
        owner.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(servers, timeout=60)
    assert not alive
    assert len(gone) == 4


def test_a_dead_object_server_is_told_as_an_unreachable_store(tmp_path: Path) -> None:
    with EmbeddedSwift(tmp_path) as swift:
        settings = swift.settings("alice")
        store = open_store("swift://photos", settings=settings)
        store.put("x", b"x")
        process = psutil.Process(swift.pids["object"])
        process.kill()
        psutil.wait_procs([process], timeout=60)
        for url in ("swift://photos", "s3://photos"):
            with pytest.raises(StoreUnreachable):
                open_store(url, settings=settings).get("x")


def test_the_stand_in_for_memcached_forgets_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("garfield.split.embedded.swift_process.time.monotonic", lambda: now[0])
    cache = LocalCache()
    cache.set("a", 1, time=10)
    cache.set("b", 2)
    assert cache.incr("n", 3) == 3
    assert cache.decr("n", 5) == 0
    cache.set_multi({"c": 3}, "server", time=10)
    assert cache.get_multi(["a", "b", "c", "d"], "server") == [1, 2, 3, None]
    now[0] += 11
    assert cache.get_multi(["a", "b", "c"]) == [None, 2, None]
    cache.delete("b")
    assert cache.get("b") is None


@pytest.mark.heavy
def test_features_in_the_proxy_are_those_beside_it_and_for_whom_they_may_be(
    tmp_path: Path,
) -> None:
    import httpx
    import numpy as np
    import torch

    from garfield.split.embedded.in_proxy import HEADER
    from garfield.split.models import load
    from garfield.split.objects import Kind
    from garfield.split.transforms import Transforms
    from garfield.split.wire import ExtractRequest, decode_features, encode_request

    images = np.random.default_rng(0).integers(0, 256, (5, 40, 40, 3), np.uint8)
    transforms = Transforms.parse("random-crop(32), flip, normalise(imagenet)")
    request = ExtractRequest(
        "swift://photos", "part-000000.gpk", 1, model="resnet18", batch=2, seed=3, epoch=1,
        first_sample_id=10, transforms=transforms.to_json(), samples=(4, 0, 2),
    )  # fmt: skip
    middleware = "garfield.split.embedded.in_proxy:filter_factory"
    with EmbeddedSwift(tmp_path, middleware=middleware) as swift:
        store = open_store("swift://photos", settings=swift.settings("alice"))
        packing = Packing(kind=Kind.UINT8)
        index = put_arrays(store, images, np.arange(5), list("abcde"), packing)
        access = store.access([])
        stranger = open_store("swift://photos", settings=swift.settings("bob")).access([])

        def ask(token: str, name: str, body: bytes) -> httpx.Response:
            url = f"{swift.endpoint}{access.account}/photos/{name}"
            headers = {HEADER: "1", "X-Auth-Token": token}
            return httpx.post(url, headers=headers, content=body, timeout=120)

        name, body = index.objects[0].name, encode_request(request)
        reply = ask(access.token, name, body)
        assert reply.status_code == 200
        assert ask("AUTH_tk0", name, body).status_code == 401
        assert ask(stranger.token, name, body).status_code == 403
        assert ask(access.token, "nothing", body).status_code == 404
        assert ask(access.token, name, b"{").status_code == 400
        held = open_object(name, store.get(name))
    features = decode_features([reply.content])
    inputs = transforms.apply(held.images([4, 0, 2]), [14, 10, 12], 3, 1)
    with torch.inference_mode():
        want = load("resnet18").prefix(1)(inputs)
    assert list(features.labels) == held.labels[[4, 0, 2]].tolist()
    assert np.allclose(features.values, want.numpy(), atol=1e-5)
