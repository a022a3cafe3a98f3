"""Time and bytes of plain fine-tuning and of a split, over links from 5 to 1000 Mbps.

Store, server and client are real and apart: two network namespaces with `tc tbf` between them,
each side pinned to one core. A cell is one run of `garfield split train`, one epoch, once per way:

    plain            every layer at the client, the frozen ones on whole batches, as in the thesis
    plain, chunked   the same, the frozen layers 50 samples at a time
    split            as planned from the measured link
    extracted once   features are put beside the data first, then trained on (only if asked for)
    webdataset       plain, by WebDataset's own loader from shards in the store's S3 (only if asked
                     for: `--ways webdataset`, with `pip install webdataset`)

Weights of the split that the nominal bandwidth leads to are put beside the store first, as they
would be after the first of many runs; others are uploaded in the run, and count.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.split_network import STORE, LimitedNetwork
from garfield.core.errors import RunError
from garfield.report.split_summary import size
from garfield.split.demo_images import write_clothes

QUESTION = "How long does an epoch take over a limited link, and what crosses it: plain and split?"

WAYS = {
    "plain": ["--baseline"],
    "plain, chunked": ["--baseline", "--chunk", "50"],
    "split": [],
    "extracted once": ["--materialise"],
}
WEBDATASET = "webdataset"
USUAL = ["plain", "plain, chunked", "split"]
_FORGET_FEATURES = """
import sys
from garfield.split.stores import StoreSettings, open_store
store = open_store(sys.argv[1], settings=StoreSettings(plain_http=True))
for name in store.names(".garfield/features/"):
    store.delete(name)
"""
_PUT_WEIGHTS = """
import sys
from garfield.split.models import load
from garfield.split.models.weights import put_weights
from garfield.split.planner import choose, situation_of
from garfield.split.profile import profile_sizes
from garfield.split.client.data_set import DataSet
from garfield.split.stores import StoreSettings
url, name, batch, mbps = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
data = DataSet.open(url, StoreSettings(plain_http=True))
weights = "pretrained" if name == "efficientnet_lite0" else None
model = load(name, weights, classes=len(data.classes))
situation = situation_of(
    profile_sizes(model), stored_bytes=data.stored_bytes_per_sample, batch=batch,
    bandwidth_bps=0.95e6 * mbps, freeze=model.freeze)
plan = choose(situation)
split = plan.split
if sys.argv[5] == "extracted once" and plan.candidates:  # the smallest, and of those the last
    split = min(plan.candidates, key=lambda each: (situation.sample_bytes(each), -each))
if split:
    put_weights(data.store, model.prefix(split))
print(split)
"""


@dataclass(frozen=True)
class Cell:
    """One run."""

    model: str
    stored_as: str
    mbps: float
    way: str
    split: int
    time_s: float
    bytes_per_iteration: float
    received_bytes: int
    uploaded_bytes: int
    loss: float
    load: float
    """Processes that wanted a core when it ended, on average: 2 on a machine of our own."""


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--models", nargs="+", default=["alexnet", "resnet18", "efficientnet_lite0"])
    group.add_argument("--stored-as", nargs="+", default=["float32", "uint8", "jpeg"])
    group.add_argument("--mbps", type=float, nargs="+", default=[5, 20, 50, 150, 500, 1000])
    group.add_argument("--images", type=int, default=1000)
    group.add_argument("--batch", type=int, default=250)
    group.add_argument("--per-object", type=int, default=125)
    group.add_argument("--epochs", type=int, default=1)
    group.add_argument("--ways", nargs="+", default=USUAL, choices=[*WAYS, WEBDATASET])


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A line per cell, as they come."""
    cells: list[Cell] = []
    rates = options.mbps[:1] if options.quick else options.mbps
    with tempfile.TemporaryDirectory() as folder, _world(options, Path(folder)) as world:
        for stored_as in options.stored_as:
            for model in options.models:
                for mbps in rates:
                    for way in options.ways:
                        cell = world.cell(model, stored_as, mbps, way)
                        cells.append(cell)
                        console.print(_line(cell), soft_wrap=True)
    console.print(_table(cells))
    return {"cells": [asdict(cell) for cell in cells]}


@dataclass
class _World:
    options: argparse.Namespace
    network: LimitedNetwork
    folder: Path
    environment: dict[str, str]
    server: str
    runs: int = 0
    sharded: set[str] = field(default_factory=set)

    def cell(self, model: str, stored_as: str, mbps: float, way: str) -> Cell:
        url, batch = f"swift://{stored_as}/clothes", self.options.batch
        self.network.limit(1000)
        if way == WEBDATASET:
            return self._webdataset(model, stored_as, mbps, url)
        if way == "extracted once":
            words = ["-c", _FORGET_FEATURES, url]
            _checked([*self.network.beside_store, sys.executable, *words], self.environment)
        if way in ("split", "extracted once"):
            words = ["-c", _PUT_WEIGHTS, url, model, str(batch), str(mbps), way]
            _checked([*self.network.beside_store, sys.executable, *words], self.environment)
        self.network.limit(mbps)
        self.runs += 1
        words = [
            "-m", "garfield", "split", "train", "--data", url, "--model", model,
            "--batch", str(batch), "--server", self.server, "--server-plain-http", "--plain-http",
            "--threads", "1", "--json", "--out", str(self.folder / f"run-{self.runs}"), *WAYS[way],
            "--epochs", str(self.options.epochs),
        ]  # fmt: skip
        told = _checked([*self.network.beside_client, sys.executable, *words], self.environment)
        return _cell(model, stored_as, mbps, way, json.loads(told))

    def _webdataset(self, model: str, stored_as: str, mbps: float, url: str) -> Cell:
        """The rival's run, from shards of the same images, for as many epochs."""
        rival = [sys.executable, "-m", "benchmarks.webdataset_rival"]
        shards = f"s3://{stored_as}-shards/clothes"
        if stored_as not in self.sharded:
            _checked([*self.network.beside_store, *rival, "pack", url, shards], self.environment)
            self.sharded.add(stored_as)
        self.network.limit(mbps)
        numbers = [str(self.options.batch), str(self.options.epochs)]
        told = _checked(
            [*self.network.beside_client, *rival, "train", shards, model, *numbers],
            self.environment,
        )
        return _cell(model, stored_as, mbps, WEBDATASET, json.loads(told))


def _cell(model: str, stored_as: str, mbps: float, way: str, summary: dict[str, Any]) -> Cell:
    return Cell(
        model, stored_as, mbps, way,
        load=os.getloadavg()[0],
        **{name: summary[name] for name in (
            "split", "time_s", "bytes_per_iteration", "received_bytes", "uploaded_bytes", "loss"
        )},
    )  # fmt: skip


@contextmanager
def _world(options: argparse.Namespace, folder: Path) -> Iterator[_World]:
    images = folder / "images"
    write_clothes(images, options.images)
    with LimitedNetwork(1000, cores=(0, (os.cpu_count() or 1) - 1)) as network:
        swift = [sys.executable, "-m", "garfield.split.embedded", str(folder / "swift")]
        with _started([*network.beside_store, *swift, "--host", STORE], dict(os.environ)) as line:
            told = json.loads(line)
            user = told["users"]["alice"]
            environment = os.environ | {
                "ST_AUTH": told["auth_url"], "ST_USER": user["login"], "ST_KEY": user["key"],
                "S3_ENDPOINT": told["endpoint"], "S3_KEY": user["login"], "S3_SECRET": user["key"],
            }  # fmt: skip
            for stored_as in options.stored_as:
                words = [
                    "-m", "garfield", "split", "put", str(images), "--plain-http",
                    "--to", f"swift://{stored_as}/clothes", "--stored-as", stored_as,
                    "--side", "224", "--images-per-object", str(options.per_object),
                ]  # fmt: skip
                _checked([*network.beside_store, sys.executable, *words], environment)
            serve = [
                sys.executable, "-m", "garfield", "split", "serve", "--store", "swift://",
                "--host", STORE, "--port", "0", "--listen-plain-http", "--plain-http",
                "--swift-endpoint", told["endpoint"], "--workers", "2", "--budget", "4GiB",
            ]  # fmt: skip
            with _started([*network.beside_store, *serve], dict(os.environ)) as line:
                found = re.search(r"Listening at (\S+),", line)
                if found is None:
                    raise RunError(f"The server did not start: {line}")
                yield _World(options, network, folder, environment, found[1])


@contextmanager
def _started(words: list[str], environment: dict[str, str]) -> Iterator[str]:
    """A process that says a line when it is ready."""
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _checked(words: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"{' '.join(words[-8:])} failed: {done.stderr[-500:]}")
    return done.stdout


def _line(cell: Cell) -> str:
    return (
        f"{cell.model} {cell.stored_as} {cell.mbps:g} Mbps {cell.way}: split {cell.split}, "
        f"{cell.time_s:.1f} s, {size(cell.bytes_per_iteration)} an iteration (load {cell.load:.0f})"
    )


def _table(cells: list[Cell]) -> Table:
    """Every split beside the plain ways of the same cell."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    ways = [way for way in (*WAYS, WEBDATASET) if any(cell.way == way for cell in cells)]
    for heading in ("model", "stored", "Mbps", "split", *ways, "faster", "fewer bytes"):
        table.add_column(heading, justify="right")
    places = {(cell.model, cell.stored_as, cell.mbps): cell for cell in cells}
    for model, stored_as, mbps in places:
        of = {
            cell.way: cell
            for cell in cells
            if (cell.model, cell.stored_as, cell.mbps) == (model, stored_as, mbps)
        }
        times = [f"{of[way].time_s:.1f} s" if way in of else "–" for way in ways]
        plain = [of[way] for way in (*USUAL[:2], WEBDATASET) if way in of]
        if "split" in of and plain:
            best, split = min(plain, key=lambda cell: cell.time_s), of["split"]
            faster = f"{best.time_s / split.time_s:.2f}×"
            fewer = f"{best.bytes_per_iteration / split.bytes_per_iteration:.2f}×"
        else:
            faster = fewer = "–"
        chosen = str(of["split"].split) if "split" in of else "–"
        table.add_row(model, stored_as, f"{mbps:g}", chosen, *times, faster, fewer)
    return table
