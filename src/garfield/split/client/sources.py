"""Where a piece's features come from: servers, the store itself, or what is kept of both.

    ServerSource    one POST per piece: the first layers run beside the store
    StoreSource     the object as it is stored, transformed here: split 0, and the baseline
    CachedSource    another source behind a cache; a hit is authorised again

All three give the same numbers for the same piece, epoch and split, and count their bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from garfield.core.errors import ObjectDamaged, StoreUnreachable
from garfield.split import wire
from garfield.split.client.cache import Array, FeatureCache, key_of
from garfield.split.client.sampler import Piece
from garfield.split.client.servers import Servers


@dataclass(frozen=True)
class Rows:
    """The features of a piece, in its order."""

    values: Array
    """(samples, …), float32."""
    labels: tuple[int, ...]
    told: Mapping[str, Any] = field(default_factory=dict)
    """What the server said of the work: COS batch, seconds, peak memory."""


class Source(Protocol):
    """Gives the features of a piece; called from several threads at once."""

    def fetch(self, piece: Piece, epoch: int) -> Rows:
        """The piece's features, with the randomness of that epoch."""


class Traffic:
    """Bytes over the link, counted by whoever receives them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.received_bytes = self.sent_bytes = self.requests = 0

    def count(self, *, received: int = 0, sent: int = 0, requests: int = 0) -> None:
        with self._lock:
            self.received_bytes += received
            self.sent_bytes += sent
            self.requests += requests
