"""Many tenants at one split server: HAPI against ALL_IN_COS, batch adaptation against none.

Every tenant sends one request at the same moment, models in turn, an object of `--images` images
each, as in Figure 5.11 of the thesis. Every way ends with the same thing done, one epoch of
fine-tuning on the object: with a split, the tenant trains the tail on the features that come, in
this process; ALL_IN_COS is the whole epoch beside the store as one request. Then the split without
adaptation, all with the largest batch, as in Figure 5.13. Memory beside the store is limited and
measured by control groups. There is a worker for each tenant, but two for whole trainings: idle
workers take memory, too, and beside more of them no training fits. On two cores running at once
gains no time by itself: what counts is how many are served at once, and how long each of them
waits.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from garfield.core.errors import RequestRefused
from garfield.split import wire
from garfield.split.models import SPLIT_MODELS, load
from garfield.split.models.cutting import Tail
from garfield.split.models.weights import put_weights
from garfield.split.objects import pack
from garfield.split.scheduler import Batching
from garfield.split.server.serving import running_server
from garfield.split.server.settings import ServeSettings
from garfield.split.stores import Access, StoreSettings, open_store
from garfield.split.stores.files import write_tokens
from garfield.split.transforms import Transforms

QUESTION = "How many tenants does a split server serve at once, and how long does each wait?"
CLASSES = 10


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--tenants", type=int, nargs="+", default=[2, 6, 10])
    group.add_argument("--models", nargs="+", default=["resnet18", "alexnet"])
    group.add_argument("--images", type=int, default=100, help="in each object")
    group.add_argument("--side", type=int, default=96, help="of an image, in pixels")
    group.add_argument("--budget", default="900MiB", help="memory of all workers together")


@dataclass
class Tenant:
    """One who asks, and for what."""

    name: str
    url: str
    model: str
    prefix_hash: str
    whole_hash: str
    object_hash: str
    split: int
    tail: Tail
    """What it trains itself, behind the split."""

    @property
    def headers(self) -> dict[str, str]:
        return {wire.ACCESS_HEADER: Access("file", token=self.name).as_header()}


def run(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tenants = _stocked(Path(folder), options)
        transforms = Transforms.parse(f"resize({options.side}, {options.side})").to_json()
        ways: dict[str, tuple[Callable[[str, Tenant], None], Batching]] = {
            "split": (_splits(transforms, options.images), Batching(window_fraction=1.0)),
            "split, no adaptation": (
                _splits(transforms, options.images),
                Batching(adapt=False, fixed_batch=options.images, window_fraction=1.0),
            ),
            "ALL_IN_COS": (_trains(transforms, options.images), Batching(window_fraction=1.0)),
        }
        for way, (ask, batching) in ways.items():
            for count in options.tenants:
                settings = ServeSettings(
                    store=Path(folder, "data").as_uri(),
                    port=0,
                    budget=options.budget,
                    workers=min(count, 2) if way == "ALL_IN_COS" else count,
                    batching=batching,
                    connection=StoreSettings(file_tokens=str(Path(folder, "tokens.json"))),
                )
                rows.append({"way": way, **_measured(settings, tenants[:count], ask, console)})
                console.print(_line(rows[-1]))
    console.print(_table(rows))
    return rows


def _stocked(folder: Path, options: argparse.Namespace) -> list[Tenant]:
    drawn = np.random.default_rng(0)
    tenants = []
    for number in range(max(options.tenants)):
        name = f"tenant-{number}"
        model = options.models[number % len(options.models)]
        store = open_store(f"{(folder / 'data').as_uri()}/{name}")
        shape = (options.images, options.side, options.side, 3)
        labels = drawn.integers(0, CLASSES, options.images)
        packed = pack(drawn.integers(0, 256, shape, np.uint8), labels, "uint8")
        store.put("part-0", packed)
        cut = load(model, classes=CLASSES, seed=0)
        prefix = put_weights(store, cut.prefix(cut.max_split())).hash
        whole = put_weights(store, cut.module).hash
        tail = cut.tail(cut.max_split())
        digest = sha256(packed).hexdigest()
        tenants.append(Tenant(name, store.url, model, prefix, whole, digest, cut.max_split(), tail))
    write_tokens(folder / "tokens.json", {each.name: [each.name] for each in tenants})
    return tenants


def _splits(transforms: str, images: int) -> Callable[[str, Tenant], None]:
    def ask(url: str, tenant: Tenant) -> None:
        request = wire.ExtractRequest(
            tenant.url,
            "part-0",
            tenant.split,
            model=tenant.model,
            weights=tenant.prefix_hash,
            samples=tuple(range(images)),
            transforms=transforms,
            batch=1000,
        )
        body = wire.encode_request(request)
        with httpx.stream(
            "POST", f"{url}/v1/extract", content=body, headers=tenant.headers, timeout=3600
        ) as answer:
            if answer.status_code != 200:
                raise wire.from_body(answer.read(), answer.status_code)
            features = wire.decode_features(answer.iter_raw())
        _train_tail(tenant.tail, features)

    return ask


def _train_tail(tail: Tail, features: wire.Features) -> None:
    """What is left of an epoch to the one who asked."""
    optimizer = torch.optim.SGD(tail.trained.parameters(), lr=0.01, momentum=0.9)
    values, labels = torch.from_numpy(features.values), torch.tensor(features.labels)
    functional.cross_entropy(tail.train()(values), labels).backward()
    optimizer.step()


def _trains(transforms: str, images: int) -> Callable[[str, Tenant], None]:
    def ask(url: str, tenant: Tenant) -> None:
        request = wire.TrainRequest(
            tenant.url,
            ("part-0",),
            (images,),
            (tenant.object_hash,),
            tenant.model,
            SPLIT_MODELS[tenant.model].freeze,
            CLASSES,
            weights=tenant.whole_hash,
            batch=images,
            transforms=transforms,
        )
        answer = httpx.post(
            f"{url}/v1/train",
            content=wire.encode_request(request),
            headers=tenant.headers,
            timeout=3600,
        )
        if answer.status_code != 200:
            raise wire.from_body(answer.content, answer.status_code)
        last = json.loads(answer.text.splitlines()[-1])
        if last["event"] != "done":
            raise RequestRefused(last["message"], last["error"])

    return ask


def _measured(
    settings: ServeSettings,
    tenants: list[Tenant],
    ask: Callable[[str, Tenant], None],
    console: Console,
) -> dict[str, Any]:
    """All at once, after each model was measured by one request of its own."""
    with running_server(settings) as server:
        first_of_each = {tenant.model: tenant for tenant in reversed(tenants)}
        for tenant in first_of_each.values():
            _timed(ask, server.url, tenant, console)
        device = server.service.queue.records["cpu0"]
        memory = server.service.pool.devices["cpu0"]
        device.peak_reserved_bytes = device.peak_running = 0
        memory.forget_peak()  # type: ignore[attr-defined]
        reduced = server.service.served.reduced
        gate = threading.Barrier(len(tenants))

        def turn(tenant: Tenant) -> float | None:
            gate.wait()
            return _timed(ask, server.url, tenant, console)

        began = time.monotonic()
        with ThreadPoolExecutor(len(tenants)) as threads:
            took = [*threads.map(turn, tenants)]
        makespan = time.monotonic() - began
        served = [seconds for seconds in took if seconds is not None]
        return {
            "tenants": len(tenants),
            "served": len(served),
            "at_once": device.peak_running,
            "reduced_percent": 100 * (server.service.served.reduced - reduced) / len(tenants),
            "makespan_s": makespan,
            "mean_s": float(np.mean(served)) if served else None,
            "budget_bytes": device.budget_bytes,
            "reserved_bytes": device.peak_reserved_bytes,
            "peak_bytes": memory.peak_bytes,
            "killed": server.service.pool.record.lost_by_memory,
        }


def _timed(
    ask: Callable[[str, Tenant], None], url: str, tenant: Tenant, console: Console
) -> float | None:
    """Seconds until it was served; None if it was refused."""
    began = time.monotonic()
    try:
        ask(url, tenant)
    except RequestRefused as refused:
        console.print(f"{tenant.name} is refused: {refused}", soft_wrap=True)
        return None
    return time.monotonic() - began


def _line(row: dict[str, Any]) -> str:
    return f"{row['way']}, {row['tenants']} tenants: {row['makespan_s']:.1f} s"


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Tenants at one server")
    for name in ("way", "tenants", "served", "at once", "makespan s", "mean s", "reserved", "peak"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for row in rows:
        budget = row["budget_bytes"]
        mean = "" if row["mean_s"] is None else f"{row['mean_s']:.1f}"
        table.add_row(
            row["way"],
            str(row["tenants"]),
            str(row["served"]),
            str(row["at_once"]),
            f"{row['makespan_s']:.1f}",
            mean,
            f"{row['reserved_bytes'] / budget:.0%}",
            f"{row['peak_bytes'] / budget:.0%}",
        )
    return table
