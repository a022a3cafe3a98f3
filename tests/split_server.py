"""A split server with tenants, for tests: small images, a small model, real worker processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from garfield.split import wire
from garfield.split.objects import pack
from garfield.split.scheduler import Batching
from garfield.split.server.queue import LONGEST_SERVICE_S
from garfield.split.server.serving import RunningServer
from garfield.split.server.settings import ServeSettings
from garfield.split.stores import Access, StoreSettings, open_store
from garfield.split.stores.files import write_tokens
from garfield.split.transforms import Transforms

MiB = 1 << 20
SIDE = 32
TRANSFORMS = f"resize(40), crop({SIDE}), normalise(imagenet)"
MODEL, SPLIT = "resnet18", 6


def images(count: int, seed: int = 0, side: int = 48) -> list[np.ndarray]:
    drawn = np.random.default_rng(seed)
    return [drawn.integers(0, 256, (side, side, 3), dtype=np.uint8) for _ in range(count)]


@dataclass
class Tenant:
    """One who has a folder of objects and a token for it."""

    name: str
    token: str
    url: str
    weights: str = ""

    @property
    def access(self) -> str:
        return Access("file", token=self.token).as_header()

    def asks(self, **changes: Any) -> wire.ExtractRequest:
        """A request of theirs."""
        usual = wire.ExtractRequest(
            self.url,
            "part-0",
            SPLIT,
            model=MODEL,
            weights=self.weights or None,
            transforms=Transforms.parse(TRANSFORMS).to_json(),
            batch=1000,
        )
        return replace(usual, **changes)


@dataclass
class Stock:
    """A folder with tenants' objects, and what a server needs to serve it."""

    root: Path
    tenants: dict[str, Tenant]

    def settings(self, **changes: Any) -> ServeSettings:
        given: dict[str, Any] = {
            "store": self.root.as_uri(),
            "port": 0,
            "budget": "600MiB",
            "workers": 2,
            "connection": StoreSettings(file_tokens=str(self.root.parent / "tokens.json")),
            "batching": Batching(),
        }
        return ServeSettings(**{**given, **changes})


def stocked(base: Path, names: list[str], count: int = 60, kind: str = "uint8") -> Stock:
    """Tenants with one object each, and the weights of the first layers."""
    from garfield.split.models import load
    from garfield.split.models.weights import put_weights

    root = base / "data"
    prefix = load(MODEL, seed=3).prefix(SPLIT)
    tenants = {}
    for number, name in enumerate(names):
        url = f"{root.as_uri()}/{name}"
        store = open_store(url)
        labels = [(number + index) % 10 for index in range(count)]
        store.put("part-0", pack(images(count, number), labels, kind))
        tenants[name] = Tenant(name, f"token-of-{name}", url, put_weights(store, prefix).hash)
    write_tokens(base / "tokens.json", {each.token: [each.name] for each in tenants.values()})
    return Stock(root, tenants)


def ask(url: str, request: wire.ExtractRequest, access: str, **options: Any) -> wire.Features:
    """Features, or the RequestRefused that the server answers."""
    headers = {wire.ACCESS_HEADER: access}
    options.setdefault("timeout", 120)
    with httpx.stream(
        "POST",
        f"{url}/v1/extract",
        content=wire.encode_request(request),
        headers=headers,
        **options,
    ) as answer:
        if answer.status_code != 200:
            raise wire.from_body(answer.read(), answer.status_code)
        return wire.decode_features(answer.iter_raw())


@contextmanager
def planned_together(server: RunningServer, count: int) -> Iterator[None]:
    """Have the next so many requests planned as one, however slowly they come.

    The window must be all of what a request takes (window_fraction=1.0).
    """
    queue = server.service.queue
    queue.service_s = LONGEST_SERVICE_S
    yield
    until(lambda: queue.waiting == count)
    server.loop.call_soon_threadsafe(queue.plan)


def status(url: str) -> Any:
    return json.loads(httpx.get(f"{url}/v1/status", timeout=60).content)


def expected(request: wire.ExtractRequest, count: int, tenant_number: int) -> np.ndarray:
    """What the features should be, computed here in one batch."""
    from garfield.split.models import load

    transforms = Transforms.from_json(request.transforms)
    indices = range(count) if request.samples is None else request.samples
    stored = images(count, tenant_number)
    ids = [request.first_sample_id + index for index in indices]
    batch = transforms.apply([stored[index] for index in indices], ids, request.seed, request.epoch)
    values: np.ndarray = load(MODEL, seed=3).prefix(request.split)(batch).numpy()
    return values


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something that another thread or process brings about."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)
