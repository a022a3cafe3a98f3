"""What a sample costs at a server while training runs, told by a server that has just done it.

Layers that were timed one by one, on a worker that had the machine to itself, say how they compare
and not how long they take when requests come as fast as they are answered: several workers then
share cores with each other and with the store, and batches are larger. So as many requests as a
training has under way, all its ranks together, are sent at once, behind the last frozen layer,
where little travels, and with that server's own weights, so that none need be there. Each tells its
seconds of reading, decoding and computing, w of them run at a time (all their seconds through the
time that they took together), and a sample takes

    Σ seconds / (w · samples)

of the server, whether its workers have a core each or one for all. AlexNet's 18 frozen layers, 128
images, two workers and a Swift on one core of a Xeon with AVX-512: 1.76 s by layers and one small
request alone, 1.34 s measured while training.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from garfield.core.errors import SplitError
from garfield.split import wire
from garfield.split.client.sampler import Piece
from garfield.split.client.sources import request_for
from garfield.split.models import SPLIT_MODELS

if TYPE_CHECKING:
    from garfield.split.client.loader import SplitLoader
    from garfield.split.client.servers import Servers

_FEW, _MANY = 8, 32
"""Samples of a request, alone and beside others; of many ranks' requests, fewer each."""
_MOST_TOGETHER = 64  # requests, however many ranks there are

Seconds = Mapping[str, float]


@dataclass(frozen=True)
class ServerSpeed:
    """Seconds of one sample."""

    decode_alone_s: float = 0.0
    """Decoding and transforming it, by one worker that has a core to itself."""
    prepare_s: float = 0.0
    """Reading, decoding and transforming it, of a server's time while others are under way."""
    forward_s: float | None = None
    """All frozen layers, likewise; None: nobody has told."""


def measured_speed(loader: SplitLoader) -> ServerSpeed:
    """Measured by a few requests; nothing where no server tells, or the model is one's own."""
    servers = loader.servers
    split = loader.model.max_split(loader.freeze)
    if servers is None or loader.model.name not in SPLIT_MODELS or split == 0:
        return ServerSpeed()
    few, together = _piece(loader, 0, _FEW), _under_way(loader, servers)
    with ExitStack() as stack:
        if len(together) > servers.connections:
            servers = stack.enter_context(closing(servers.with_connections(len(together))))
        try:
            # alone, and what a server does once for a model is done
            alone = _seconds(loader, servers, few, split)
            began = time.monotonic()
            with ThreadPoolExecutor(len(together)) as threads:
                told = [*threads.map(lambda each: _seconds(loader, servers, each, split), together)]
            took_s = time.monotonic() - began
        except (SplitError, KeyError, TypeError, ValueError, AttributeError):
            return ServerSpeed()  # then as if both took no time
    decode_s = alone.get("decode", 0.0) / len(few)
    return speed_of(told, sum(map(len, together)), took_s, decode_s)


def speed_of(
    told: Sequence[Seconds], samples: int, took_s: float, decode_alone_s: float = 0.0
) -> ServerSpeed:
    """The speed of a server that told these seconds of requests which took so long together."""
    running = sum(sum(each.values()) for each in told) / took_s
    shares = samples * min(float(len(told)), max(1.0, running))

    def share(*parts: str) -> float:
        return sum(each.get(part, 0.0) for each in told for part in parts) / shares

    return ServerSpeed(decode_alone_s, share("read", "decode"), share("forward") or None)


def _under_way(loader: SplitLoader, servers: Servers) -> list[Piece]:
    """As many pieces as all ranks ask for at once: one of them measures for all."""
    ranks, objects = loader.sampler.ranks, len(loader.data.objects)
    count = min(servers.connections * ranks, max(servers.connections, _MOST_TOGETHER))
    most = max(_FEW, _MANY // ranks)
    return [_piece(loader, at % objects, most) for at in range(count)]


def _piece(loader: SplitLoader, at: int, most: int) -> Piece:
    return Piece(at, tuple(range(min(most, loader.data.objects[at].count))))


def _seconds(loader: SplitLoader, servers: Servers, piece: Piece, split: int) -> Seconds:
    """What a server says to have spent on a piece, by what it did."""
    asked = wire.ExtractRequest(
        loader.data.url, "-", split, model=loader.model.name,
        transforms=loader.transforms.to_json(), seed=loader.loading.seed, batch=len(piece),
    )  # fmt: skip
    request = request_for(asked, loader.data, piece, epoch=0)
    access = loader.data.access_for(request)
    told = servers.extract(request, access, loader.shapes[split], len(piece)).trailer
    return {name: max(0.0, float(value)) for name, value in told["seconds"].items()}
