"""Features computed inside Swift's proxy, and beside it: the question of the thesis's Table 5.1.

One object of images is asked for once, and then by several at once, through a proxy that
computes features itself (split/embedded/in_proxy.py), and through a server beside the same
Swift. Meanwhile somebody else reads a small object again and again: how long the longest of
these reads took tells whether the store still serves its other users. Both sides use one
torch thread for each request; the server beside has as many workers as there are requests.

The thesis, one request, on GPUs: ResNet-18 348 s in the proxy and 331 s beside it, ResNet-50
384 and 324, AlexNet 308 and 307, DenseNet-121 487 and 411.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from garfield.split.embedded import EmbeddedSwift
from garfield.split.embedded.in_proxy import HEADER
from garfield.split.models import SPLIT_MODELS
from garfield.split.objects import Kind
from garfield.split.objects.packing import Packing, put_arrays
from garfield.split.server.serving import running_server
from garfield.split.server.settings import ServeSettings
from garfield.split.stores import open_store
from garfield.split.transforms import Transforms
from garfield.split.wire import (
    ACCESS_HEADER,
    ExtractRequest,
    Features,
    decode_features,
    encode_request,
)

QUESTION = "Is it faster to compute features inside Swift's proxy, or beside it?"
DATA, OBJECT = "swift://bench/set", "part-000000.gpk"


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--models", nargs="+", default=["alexnet", "resnet18", "densenet121"])
    group.add_argument("--images", type=int, default=100, help="in the object")
    group.add_argument("--at-once", type=int, default=2, help="requests at the same time")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A line per model and way, with one request and with several."""
    images = 8 if options.quick else options.images
    names = options.models[:1] if options.quick else options.models
    found = []
    middleware = "garfield.split.embedded.in_proxy:filter_factory"
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedSwift(Path(directory), middleware=middleware) as swift,
    ):
        pixels = np.random.default_rng(0).integers(0, 256, (images, 224, 224, 3), np.uint8)
        store = open_store(DATA, settings=swift.settings("alice"))
        packing = Packing(kind=Kind.UINT8, images_per_object=images)
        put_arrays(store, pixels, np.zeros(images, np.int64), ["only"], packing)
        store.put("small", b"x" * 1000)
        settings = ServeSettings(
            store="swift://", port=0, budget="6GiB", workers=options.at_once,
            connection=swift.server_settings(),
        )  # fmt: skip
        with running_server(settings) as server:
            access = store.access([])
            ways = {
                "in the proxy": (f"{swift.endpoint}{access.account}/bench/set/{OBJECT}",
                                 {HEADER: "1", "X-Auth-Token": access.token}),
                "beside it": (f"{server.url}/v1/extract", {ACCESS_HEADER: access.as_header()}),
            }  # fmt: skip
            for model in names:
                found += _compared(model, ways, lambda: store.get("small"), options.at_once)
    console.print(_table(found))
    return {"requests": found, "images": images}


def _compared(
    model: str,
    ways: dict[str, tuple[str, dict[str, str]]],
    read: Callable[[], bytes],
    at_once: int,
) -> list[dict[str, Any]]:
    known = SPLIT_MODELS[model]
    request = ExtractRequest(
        DATA, OBJECT, known.freeze + 1, model=model, batch=25,
        transforms=Transforms.parse("crop(224), normalise(imagenet)").to_json(),
    )  # fmt: skip
    body, lines, results = encode_request(request), [], {}
    for way, (url, headers) in ways.items():
        results[way] = _asked(url, headers, body)  # also warms up
        for count in (1, at_once):
            took, longest = _timed(lambda u=url, h=headers: _asked(u, h, body), read, count)
            lines.append(
                {"model": model, "way": way, "requests": count, "seconds": took,
                 "longest_other_read_s": longest}
            )  # fmt: skip
    first, second = results.values()
    if not np.allclose(first.values, second.values, atol=1e-4):
        raise AssertionError(f"{model}: the two ways gave different features.")
    return lines


def _asked(url: str, headers: dict[str, str], body: bytes) -> Features:
    with httpx.stream("POST", url, headers=headers, content=body, timeout=1200) as reply:
        if reply.status_code != 200:
            raise AssertionError(f"{url}: {reply.status_code} {reply.read()[:300]!r}")
        return decode_features(reply.iter_bytes())


def _timed(ask: Callable[[], object], read: Callable[[], bytes], count: int) -> tuple[float, float]:
    """Seconds until so many requests at once are answered, and the longest read meanwhile."""
    asking = [threading.Thread(target=ask) for _ in range(count)]
    longest, began = 0.0, time.perf_counter()
    for thread in asking:
        thread.start()
    while any(thread.is_alive() for thread in asking):
        before = time.perf_counter()
        read()
        longest = max(longest, time.perf_counter() - before)
        time.sleep(0.02)
    return time.perf_counter() - began, longest


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for heading in ("model", "features computed", "requests", "s", "longest other read, s"):
        table.add_column(heading, justify="left" if heading[0] in "mf" else "right")
    for line in found:
        table.add_row(
            line["model"], line["way"], str(line["requests"]), f"{line['seconds']:.2f}",
            f"{line['longest_other_read_s']:.2f}",
        )  # fmt: skip
    return table
