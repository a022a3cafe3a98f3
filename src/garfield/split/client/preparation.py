"""What a sample costs before its first layer, told by a server that has just done it.

A few samples of one object are asked for behind the last frozen layer, where little travels, and
with that server's own weights, so that none need be there. Reading an object takes its time once
for all of its samples; decoding and transforming, for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from garfield.core.errors import SplitError
from garfield.split import wire
from garfield.split.client.sampler import Piece
from garfield.split.client.sources import request_for
from garfield.split.models import SPLIT_MODELS

if TYPE_CHECKING:
    from garfield.split.client.loader import SplitLoader

_FEW = 8


@dataclass(frozen=True)
class Preparation:
    """Seconds of one sample, at a server."""

    read_s: float = 0.0
    """Its share of reading an object from the store."""
    decode_s: float = 0.0
    """Decoding and transforming it."""


def preparation(loader: SplitLoader) -> Preparation:
    """Measured by one small request; nothing where no server tells, or the model is one's own."""
    if loader.servers is None or loader.model.name not in SPLIT_MODELS:
        return Preparation()
    split = loader.model.max_split(loader.freeze)
    if split == 0:
        return Preparation()
    stored = loader.data.objects[0]
    few = Piece(0, tuple(range(min(_FEW, stored.count))))
    asked = wire.ExtractRequest(
        loader.data.url, "-", split, model=loader.model.name,
        transforms=loader.transforms.to_json(), seed=loader.loading.seed, batch=len(few),
    )  # fmt: skip
    request = request_for(asked, loader.data, few, epoch=0)
    try:
        access = loader.data.access_for(request)
        told = loader.servers.extract(request, access, loader.shapes[split], len(few)).trailer
        seconds = {name: float(value) for name, value in told["seconds"].items()}
    except (SplitError, KeyError, TypeError, ValueError, AttributeError):
        return Preparation()  # then as if both took no time
    return Preparation(
        max(0.0, seconds.get("read", 0.0)) / stored.count,
        max(0.0, seconds.get("decode", 0.0)) / len(few),
    )
