"""What `garfield split serve` can be told."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated

from garfield.core.bounds import Within
from garfield.core.errors import ConfigError
from garfield.split.scheduler import Batching
from garfield.split.stores.settings import StoreSettings, is_loopback

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}  # fmt: skip
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?i?B?)")

_AMOUNTS = (
    "budget", "most_object", "most_weights", "weights_kept", "buffer", "buffers", "spool",
)  # fmt: skip


@dataclass(frozen=True)
class ServeSettings:
    """Of one server beside a store."""

    store: str = ""
    """What it serves: `swift://`, `s3://`, or below: `swift://container`, `s3://bucket/prefix`,
    `file:///folder`. Requests for anything else are refused."""
    host: str = "127.0.0.1"
    """Address to listen at. Beyond loopback a certificate is needed."""
    port: Annotated[int, Within(0, 65535)] = 8077
    """Port to listen at; 0 takes a free one."""
    certificate: str | None = None
    """File with the TLS certificate chain."""
    certificate_key: str | None = None
    """File with its private key."""
    listen_plain_http: bool = False
    """Listen without TLS beyond loopback: tokens then travel as they are. Only for a network
    that is yours alone, such as between two namespaces of one machine."""
    budget: str = "2GiB"
    """Memory for the workers of each device."""
    devices: Annotated[int, Within(1, 64)] = 1
    """Devices, each with a budget and workers of its own. All are CPUs."""
    workers: Annotated[int, Within(1, 256)] = 4
    """Warm processes for each device: as many requests run at once, memory permitting."""
    threads: Annotated[int, Within(1, 256)] = 1
    """Threads that torch uses in each of them."""
    recycle_after: Annotated[int, Within(1)] = 200
    """Requests, after which a worker is replaced by a fresh one."""
    limit_by: str = "auto"
    """What holds workers to their memory: auto, cgroup-v1, cgroup-v2 or rlimit."""
    most_waiting: Annotated[int, Within(1)] = 1000
    """Requests that may wait; more are told to try elsewhere."""
    most_per_client: Annotated[int, Within(1)] = 256
    """Requests of one tenant at one address that may wait or run. A tenant is an account of Swift,
    a key of S3 or a token for files, once the store has confirmed its rights; until then requests
    count for their address, and so do measurements of the link, by themselves. Behind a proxy all
    have its address: let it keep strangers from asking too often."""
    most_object: str = "2GiB"
    """The largest object that is read."""
    most_weights: str = "1GiB"
    """The largest file of weights that is read."""
    weights_kept: str = "4GiB"
    """Disk for weights that were fetched before; rights are checked at every request."""
    buffer: str = "32MiB"
    """Features of one request that wait in memory for a client to take them."""
    buffers: str = "512MiB"
    """Memory for what waits so of all requests together."""
    spool: str = "4GiB"
    """Disk for what waits beyond that, of all requests: who reads slowly keeps no worker then. A
    quarter of it is the most for one tenant at one address, and room for the largest weights is
    left free. It is where temporary files go: let TMPDIR be on a disk."""
    receive_s: Annotated[float, Within(0, above=True)] = 15.0
    """How long a request may take to arrive, headers and all."""
    stall_s: Annotated[float, Within(0, above=True)] = 60.0
    """How long a client may take for 256 KiB of its answer."""
    work_s: Annotated[float, Within(0, above=True)] = 600.0
    """How long a worker may take for a batch before it is replaced."""
    store_s: Annotated[float, Within(0, above=True)] = 60.0
    """How long the store may take to say whether a tenant may read."""
    all_in_store: bool = True
    """Allow whole trainings beside the store (`POST /v1/train`)."""
    batching: Batching = field(default_factory=Batching)
    connection: StoreSettings = field(default_factory=StoreSettings)

    def __post_init__(self) -> None:
        scheme, _, _ = self.store.partition("://")
        if scheme not in ("swift", "s3", "file"):
            raise ConfigError(
                f"store must begin with swift://, s3:// or file://, got {self.store!r}."
            )
        for name in _AMOUNTS:
            amount(getattr(self, name), name)
        if self.limit_by not in ("auto", "cgroup-v1", "cgroup-v2", "rlimit"):
            raise ConfigError(
                f"limit_by must be auto, cgroup-v1, cgroup-v2 or rlimit, got {self.limit_by!r}."
            )
        if (self.certificate is None) != (self.certificate_key is None):
            raise ConfigError("certificate and certificate_key go together: give both.")
        if self.certificate is None and not self.listen_plain_http and not is_loopback(self.host):
            raise ConfigError(
                f"{self.host} is reached over a network, where tokens need TLS: give certificate "
                "and certificate_key, or listen at 127.0.0.1 behind a proxy that has them."
            )

    @property
    def budgets(self) -> dict[str, int]:
        """Bytes by device."""
        return {f"cpu{index}": amount(self.budget, "budget") for index in range(self.devices)}


def amount(text: str, name: str) -> int:
    """Bytes from a text such as 2GiB, 500 MB or 1048576."""
    found = _AMOUNT.fullmatch(text.strip())
    if found is None or found[2] not in _UNITS or (size := float(found[1]) * _UNITS[found[2]]) < 1:
        raise ConfigError(f"{name} must be an amount such as 2GiB or 500MB, got {text!r}.")
    return int(size)
