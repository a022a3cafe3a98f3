"""Clients of object stores, and ours on top of them, against one real Swift on loopback.

Each way gets the same objects: 100 images as float32 are 60 MB, as uint8 15 MB, as JPEG 1.6 MB;
weights of a small model have 16 MB. Beside wall time stands the processor time of the client
alone: on two cores the store takes most of the wall time, and noise hits it most, so it is the
processor time that tells clients apart. obstore, python-swiftclient and httpx come with the
`split` and `dev` extras; boto3 needs python-dateutil below 3 and is timed only where it can be
imported (--boto3 names a directory that `pip install --target` made).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from garfield.split.embedded import EmbeddedSwift
from garfield.split.stores import open_store

QUESTION = "Which clients of object stores are fastest, and what does our contract cost on top?"
SIZES = {"16 KB": 16_000, "1.6 MB": 1_600_000, "15 MB": 15_000_000}
LARGE = {"60 MB": 60_000_000}

Way = Callable[[str], bytes]


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--rounds", type=int, default=9, help="of all clients at each size")
    group.add_argument("--boto3", default="", help="a directory with boto3, to time it too")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A table of GETs by size and client, and one of PUTs."""
    rounds = 3 if options.quick else options.rounds
    sizes = SIZES if options.quick else {**SIZES, **LARGE}
    with tempfile.TemporaryDirectory() as directory, EmbeddedSwift(Path(directory)) as swift:
        ours = open_store("swift://bench", settings=swift.settings("alice"))
        for name, size in sizes.items():
            ours.put(name.replace(" ", "-"), os.urandom(size))
        gets, puts = _ways(swift, options.boto3)
        found = [
            line
            for name, size in sizes.items()
            for line in _timed("GET", name, size, rounds, _bound(gets, name.replace(" ", "-")))
        ]
        data = os.urandom(SIZES["15 MB"])
        writing = {way: (lambda do=do: do("written", data)) for way, do in puts.items()}
        found += _timed("PUT", "15 MB", len(data), max(3, rounds // 2), writing)
    console.print(_table(found))
    return {"clients": found}


def _bound(ways: dict[str, Way], name: str) -> dict[str, Callable[[], object]]:
    return {way: (lambda do=do: do(name)) for way, do in ways.items()}


def _ways(swift: EmbeddedSwift, boto3_at: str) -> tuple[dict[str, Way], dict[str, Any]]:
    import httpx
    import obstore.store
    import swiftclient
    import urllib3

    settings, server = swift.settings("alice"), swift.server_settings()
    who = swift.users["alice"]
    client = swiftclient.Connection(swift.auth_url, who.login, who.key)
    url, token = client.get_auth()
    url, headers = f"{url}/bench/", {"X-Auth-Token": token}
    over_httpx, over_urllib3 = httpx.Client(headers=headers), urllib3.PoolManager()
    s3 = obstore.store.S3Store(
        "bench", endpoint=swift.endpoint, access_key_id=who.login, secret_access_key=who.key,
        region="us-east-1", virtual_hosted_style_request=False, client_options={"allow_http": True},
    )  # fmt: skip
    native, own_s3 = (open_store(f"{s}://bench", settings=settings) for s in ("swift", "s3"))

    def forwarded(scheme: str) -> Way:
        """As a server does: opened anew for every request, with a client's rights."""
        store = open_store(f"{scheme}://bench", settings=settings)
        return lambda name: open_store(f"{scheme}://bench", store.access([name]), server).get(name)

    gets: dict[str, Way] = {
        "python-swiftclient": lambda name: client.get_object("bench", name)[1],
        "httpx": lambda name: over_httpx.get(url + name).content,
        "urllib3": lambda name: over_urllib3.request("GET", url + name, headers=headers).data,
        "obstore (S3)": lambda name: bytes(s3.get(name).bytes()),
        "ours: swift://": native.get,
        "ours: s3://": own_s3.get,
        "ours: a server, token": forwarded("swift"),
        "ours: a server, presigned": forwarded("s3"),
    }
    puts: dict[str, Any] = {
        "python-swiftclient": lambda name, data: client.put_object("bench", name, data),
        "httpx": lambda name, data: over_httpx.put(url + name, content=data).raise_for_status(),
        "obstore (S3), multipart": lambda name, data: s3.put(name, data),
        "ours: swift://": native.put,
        "ours: s3://": own_s3.put,
    }
    boto = _boto3(swift, boto3_at)
    if boto is not None:
        gets["boto3"] = lambda name: boto.get_object(Bucket="bench", Key=name)["Body"].read()
        puts["boto3"] = lambda name, data: boto.put_object(Bucket="bench", Key=name, Body=data)
    return gets, puts


def _boto3(swift: EmbeddedSwift, directory: str) -> Any:
    if directory:
        sys.path.append(directory)  # last: what it brings must not stand in for what is installed
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        return None
    who = swift.users["alice"]
    return boto3.client(
        "s3", endpoint_url=swift.endpoint, region_name="us-east-1", aws_access_key_id=who.login,
        aws_secret_access_key=who.key, config=Config(s3={"addressing_style": "path"}),
    )  # fmt: skip


def _timed(
    what: str, size_name: str, size: int, rounds: int, ways: dict[str, Callable[[], object]]
) -> list[dict[str, Any]]:
    """Fastest wall time and least processor time of each, over rounds in which all have a turn."""
    wall, cpu = dict.fromkeys(ways, float("inf")), dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for way, do in ways.items():
            began, began_cpu = time.perf_counter(), time.process_time()
            do()
            wall[way] = min(wall[way], time.perf_counter() - began)
            cpu[way] = min(cpu[way], time.process_time() - began_cpu)
    return [
        {"what": what, "size": size_name, "client": way, "ms": 1e3 * wall[way],
         "cpu_ms": 1e3 * cpu[way], "mb_per_s": size / wall[way] / 1e6}
        for way in ways
    ]  # fmt: skip


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for heading in ("", "size", "client", "ms", "MB/s", "client's processor, ms"):
        table.add_column(heading, justify="left" if heading in ("", "client") else "right")
    before = ""
    for line in found:
        now = f"{line['what']} {line['size']}"
        if before and before != now:
            table.add_section()
        table.add_row(
            line["what"], line["size"], line["client"], f"{line['ms']:.1f}",
            f"{line['mb_per_s']:.0f}", f"{line['cpu_ms']:.1f}",
        )  # fmt: skip
        before = now
    return table
