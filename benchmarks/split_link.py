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
would be after the first of many runs; others are uploaded in the run, and count. Every cell is kept
in results/split_link.jsonl as soon as it is done, and not run again (--anew does).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.split_world import SplitWorld, checked, split_world
from garfield.report.plain_tables import plain_table
from garfield.report.split_summary import size

QUESTION = "How long does an epoch take over a limited link, and what crosses it: plain and split?"

WAYS = {
    "plain": ["--baseline"],
    "plain, chunked": ["--baseline", "--chunk", "50"],
    "split": [],
    "extracted once": ["--materialise"],
}
WEBDATASET = "webdataset"
KEPT = Path(__file__).parents[1] / "results" / "split_link.jsonl"
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


Place = tuple[str, str, float, str, int, int, int]


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
    batch: int
    images: int
    epochs: int

    @property
    def place(self) -> Place:
        """What tells it from other cells."""
        return (
            self.model, self.stored_as, self.mbps, self.way, self.batch, self.images, self.epochs,
        )  # fmt: skip


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--models", nargs="+", default=["alexnet", "resnet18", "efficientnet_lite0"])
    group.add_argument("--stored-as", nargs="+", default=["float32", "uint8", "jpeg"])
    group.add_argument("--mbps", type=float, nargs="+", default=[5, 20, 50, 150, 500, 1000])
    group.add_argument("--images", type=int, default=1000)
    group.add_argument("--batch", type=int, default=250)
    group.add_argument("--per-object", type=int, default=125)
    group.add_argument("--epochs", type=int, default=1)
    group.add_argument("--ways", nargs="+", default=USUAL, choices=[*WAYS, WEBDATASET])
    group.add_argument("--anew", action="store_true", help="run cells again that were run")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A line per cell, as they come."""
    rates = options.mbps[:1] if options.quick else options.mbps
    cells = [*product(options.stored_as, options.models, rates, options.ways)]
    numbers = options.batch, options.images, options.epochs
    places = [(model, kind, mbps, way, *numbers) for kind, model, mbps, way in cells]
    found = {} if options.anew else {cell.place: cell for cell in _kept()}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bench = None
        for place in places:
            if place not in found:
                if bench is None:
                    bench = _Bench(options, stack.enter_context(_world(options, folder)), folder)
                found[place] = bench.cell(*place[:4])
                with KEPT.open("a") as file:
                    file.write(json.dumps(asdict(found[place])) + "\n")
            console.print(_line(found[place]), soft_wrap=True)
    done = [found[place] for place in places]
    console.print(_table(done))
    return {"cells": [asdict(cell) for cell in done]}


def _kept() -> list[Cell]:
    KEPT.parent.mkdir(exist_ok=True)
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    return [Cell(**json.loads(line)) for line in lines]


def _world(options: argparse.Namespace, folder: str) -> AbstractContextManager[SplitWorld]:
    return split_world(
        Path(folder), images=options.images, per_object=options.per_object,
        stored_as=options.stored_as,
    )  # fmt: skip


@dataclass
class _Bench:
    options: argparse.Namespace
    world: SplitWorld
    folder: str
    runs: int = 0
    sharded: set[str] = field(default_factory=set)

    def cell(self, model: str, stored_as: str, mbps: float, way: str) -> Cell:
        url, batch = SplitWorld.data(stored_as), self.options.batch
        self.world.network.limit(1000)
        if way == WEBDATASET:
            return self._webdataset(model, stored_as, mbps, url)
        if way == "extracted once":
            self._beside_store(sys.executable, "-c", _FORGET_FEATURES, url)
        if way in ("split", "extracted once"):
            words = [url, model, str(batch), str(mbps), way]
            self._beside_store(sys.executable, "-c", _PUT_WEIGHTS, *words)
        self.runs += 1
        words = [
            "-m", "garfield", "split", "train", "--data", url, "--model", model,
            "--batch", str(batch), "--server", self.world.server, "--server-plain-http",
            "--plain-http", "--threads", "1", "--json",
            "--out", str(Path(self.folder, f"run-{self.runs}")),
            "--epochs", str(self.options.epochs), *WAYS[way],
        ]  # fmt: skip
        told = self._over_the_link(mbps, sys.executable, *words)
        return self._cell(model, stored_as, mbps, way, told)

    def _beside_store(self, *words: str) -> None:
        checked([*self.world.network.beside_store, *words], self.world.environment)

    def _over_the_link(self, mbps: float, *words: str) -> str:
        self.world.network.limit(mbps)
        return checked([*self.world.network.beside_client, *words], self.world.environment)

    def _webdataset(self, model: str, stored_as: str, mbps: float, url: str) -> Cell:
        """The rival's run, from shards of the same images, for as many epochs."""
        rival = [sys.executable, "-m", "benchmarks.webdataset_rival"]
        shards = f"s3://{stored_as}-shards/clothes"
        if stored_as not in self.sharded:
            self._beside_store(*rival, "pack", url, shards)
            self.sharded.add(stored_as)
        numbers = [str(self.options.batch), str(self.options.epochs)]
        told = self._over_the_link(mbps, *rival, "train", shards, model, *numbers)
        return self._cell(model, stored_as, mbps, WEBDATASET, told)

    def _cell(self, model: str, stored_as: str, mbps: float, way: str, told: str) -> Cell:
        summary, options = json.loads(told), self.options
        return Cell(
            model, stored_as, mbps, way,
            load=os.getloadavg()[0],
            batch=options.batch, images=options.images, epochs=options.epochs,
            **{name: summary[name] for name in (
                "split", "time_s", "bytes_per_iteration", "received_bytes", "uploaded_bytes", "loss"
            )},
        )  # fmt: skip


def _line(cell: Cell) -> str:
    return (
        f"{cell.model} {cell.stored_as} {cell.mbps:g} Mbps {cell.way}: split {cell.split}, "
        f"{cell.time_s:.1f} s, {size(cell.bytes_per_iteration)} an iteration (load {cell.load:.0f})"
    )


def _table(cells: list[Cell]) -> Table:
    """Every split beside the plain ways of the same cell."""
    ways = [way for way in (*WAYS, WEBDATASET) if any(cell.way == way for cell in cells)]
    numbers = ("Mbps", "split", *ways, "faster", "fewer bytes")
    table = plain_table("model", "stored", *numbers, right=len(numbers))
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
