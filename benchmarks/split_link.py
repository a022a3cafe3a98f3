"""Time and bytes of plain fine-tuning and of a split, over links from 5 to 1000 Mbps.

Store, server and client are real and apart: two network namespaces with `tc tbf` between them,
each side pinned to one core. A cell is real training by one way, through the store, the link and
the optimizer's step: seconds of an iteration, once requests ahead of training fill their window
(two iterations are not counted), and bytes that were counted on arrival.

    plain            every layer at the client, the frozen ones on whole batches, as in the thesis
    plain, chunked   the same, the frozen layers 50 samples at a time, as they do by default
    split            where the adaptive planner cuts, from the link as it was measured
    predictive       where the predictive planner cuts, from times of both sides as well
    thesis           where Algorithm 2 cuts as it is printed (only if --ways names it)
    webdataset       plain, by WebDataset's own loader from shards in the store's S3

A batch is 128, or less where streaming it would take more than 15 s: to halve batch and bandwidth
together leads planners to the same cut. It is always four objects, as many as are asked for at
once: with fewer in a batch, several batches arrive in one burst. Every cell is kept in
benchmarks/raw/split_link.jsonl as soon as it is done, and not run again on a machine of that kind;
--show runs nothing and prints all that are there. What is compared was timed in one go.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import groupby, product
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.alone import alone
from benchmarks.split_timed import TimedClient
from benchmarks.split_timings import standard_error
from benchmarks.split_world import SplitWorld, checked, split_world
from garfield.report.machine import processor
from garfield.report.plain_tables import plain_table
from garfield.report.split_summary import size
from garfield.split.planner import Situation, choose
from garfield.split.settings import Loading

QUESTION = "How long does an iteration take over a limited link, and what crosses it?"

PLAIN = {"plain": 0, "plain, chunked": 50}
"""Samples at a time through the frozen layers at the client; 0 for the whole batch."""
PLANNED = {"split": "adaptive", "predictive": "predictive", "thesis": "thesis"}
WEBDATASET = "webdataset"
WAYS = [*PLAIN, *PLANNED, WEBDATASET]
USUAL_WAYS = [*PLAIN, "split", "predictive", WEBDATASET]
KEPT = Path(__file__).parent / "raw" / "split_link.jsonl"
IMAGES, OBJECTS_A_BATCH = 512, 4
ITERATIONS, LEAST_S = 3, 6.0
"""At least so many are timed, and for so long: pieces of a batch come in bursts."""
_MOST_BATCH, _LEAST_BATCH, _LONGEST_S = 128, 16, 15.0
_STORED = {"float32": 602_112, "uint8": 150_528, "jpeg": 16_000}  # bytes of an image, about

Place = tuple[str, str, int, float, str]


@dataclass(frozen=True)
class Cell:
    """Training by one way, over one link."""

    model: str
    stored_as: str
    batch: int
    mbps: float
    way: str
    split: int
    seconds: tuple[float, ...]
    """Of each iteration."""
    bytes_per_iteration: float
    processor: str

    @property
    def place(self) -> Place:
        """What tells it from other cells."""
        return (self.model, self.stored_as, self.batch, self.mbps, self.way)

    @property
    def iteration_s(self) -> float:
        return fmean(self.seconds)

    @property
    def deviation(self) -> float:
        """The standard error of the mean, as a share of it."""
        return standard_error(self.seconds)

    def told(self) -> dict[str, Any]:
        """For results and recipes."""
        return {**asdict(self), "iteration_s": self.iteration_s, "deviation": self.deviation}


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--models", nargs="+", default=["alexnet", "resnet18", "efficientnet_lite0"])
    group.add_argument("--stored-as", nargs="+", default=[*_STORED], choices=[*_STORED])
    group.add_argument("--mbps", type=float, nargs="+", default=[5, 20, 50, 150, 500, 1000])
    group.add_argument("--batch", type=int, default=0, help="(so that streaming it takes 15 s)")
    group.add_argument("--ways", nargs="+", default=USUAL_WAYS, choices=WAYS)
    group.add_argument("--iterations", type=int, default=ITERATIONS, help="that count, at least")
    group.add_argument("--anew", action="store_true", help="run cells again that were run")
    group.add_argument("--show", action="store_true", help="run nothing: show what is there")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A line per cell, as they come."""
    here = processor()
    of_processors: dict[str, list[Cell]] = {}
    if options.show:
        for cell in _kept():
            of_processors.setdefault(cell.processor, []).append(cell)
    else:
        known = [] if options.anew else [cell for cell in _kept() if cell.processor == here]
        kept, places = {cell.place: cell for cell in known}, _places(options)
        _fill(kept, places, options.iterations, console)
        of_processors[here] = [kept[place] for place in places]
    for name, cells in of_processors.items():
        console.print(name, _table(cells), _crossings(cells))
    return {"cells": [cell.told() for cells in of_processors.values() for cell in cells]}


def usual_batch(stored_as: str, mbps: float) -> int:
    """128, or the largest power of two that is streamed in 15 s; at least 16."""
    most = _LONGEST_S * mbps * 1e6 / 8 / _STORED[stored_as]
    batch = _MOST_BATCH
    while batch > max(most, _LEAST_BATCH):
        batch //= 2
    return batch


def _places(options: argparse.Namespace) -> list[Place]:
    rates = options.mbps[:1] if options.quick else options.mbps
    return [
        (model, kind, options.batch or usual_batch(kind, mbps), mbps, way)
        for model, kind, mbps, way in product(
            options.models, options.stored_as, rates, options.ways
        )
    ]


def _kept() -> list[Cell]:
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    cells = [json.loads(line) for line in lines]
    return [Cell(**{**cell, "seconds": tuple(cell["seconds"])}) for cell in cells]


def _fill(kept: dict[Place, Cell], places: list[Place], iterations: int, console: Console) -> None:
    """Time the cells that are missing; the store is started if any is."""
    missing = [place for place in places if place not in kept]
    if not missing:
        return
    KEPT.parent.mkdir(exist_ok=True)
    for batch, of_batch in groupby(sorted(missing, key=_batch_of, reverse=True), _batch_of):
        places = list(of_batch)
        kinds = sorted({place[1] for place in places})
        images, per_object = max(IMAGES, batch), max(1, batch // OBJECTS_A_BATCH)
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            world = stack.enter_context(
                split_world(Path(folder), images=images, per_object=per_object, stored_as=kinds)
            )
            bench = _Bench(world, folder, stack, iterations, images)
            for _, compared in groupby(places, lambda place: place[:2]):
                with alone():
                    for place in compared:
                        kept[place] = bench.cell(*place)
                        with KEPT.open("a") as file:
                            file.write(json.dumps(asdict(kept[place])) + "\n")
                        console.print(_line(kept[place]), soft_wrap=True)


def _batch_of(place: Place) -> int:
    return place[2]


@dataclass
class _Bench:
    world: SplitWorld
    folder: str
    stack: ExitStack
    iterations: int
    images: int
    clients: dict[str, TimedClient] = field(default_factory=dict)
    situations: dict[tuple[Any, ...], Situation] = field(default_factory=dict)
    sharded: set[str] = field(default_factory=set)

    def cell(self, model: str, stored_as: str, batch: int, mbps: float, way: str) -> Cell:
        if way == WEBDATASET:
            split, told = 0, self._webdataset(model, stored_as, batch, mbps)
        else:
            split = self._split(model, stored_as, batch, mbps, way)
            told = self._client(model).time(
                stored_as, mbps=mbps, batch=batch, split=split, iterations=self.iterations,
                least_s=LEAST_S, chunk=PLAIN.get(way, Loading.chunk),
            )  # fmt: skip
        return Cell(
            model, stored_as, batch, mbps, way, split, tuple(told["seconds"]),
            told["bytes_per_iteration"], processor(),
        )  # fmt: skip

    def _client(self, model: str) -> TimedClient:
        """One at a time: each holds its model and what it has asked for ahead."""
        if model not in self.clients:
            for other in self.clients.values():
                other.__exit__(None, None, None)
            self.clients = {model: TimedClient(self.world, model, self.folder)}
            self.stack.push(self.clients[model])
        return self.clients[model]

    def _split(self, model: str, stored_as: str, batch: int, mbps: float, way: str) -> int:
        if way in PLAIN:
            return 0
        where = (model, stored_as, batch, mbps)
        if where not in self.situations:
            client = self._client(model)
            self.situations[where] = client.situation(stored_as, mbps=mbps, batch=batch)
        return choose(self.situations[where], PLANNED[way]).split

    def _webdataset(self, model: str, stored_as: str, batch: int, mbps: float) -> dict[str, Any]:
        """The rival's run, from shards of the same images."""
        rival = [sys.executable, "-m", "benchmarks.webdataset_rival"]
        shards, world = f"s3://{stored_as}-shards/clothes", self.world
        if stored_as not in self.sharded:
            pack = [*world.network.beside_store, *rival, "pack", world.data(stored_as), shards]
            checked(pack, world.environment)
            self.sharded.add(stored_as)
        world.network.limit(mbps)
        numbers = [batch, self.iterations, int(LEAST_S), self.images]
        words = [*rival, "train", shards, model, *map(str, numbers)]
        told: dict[str, Any] = json.loads(
            checked([*world.network.beside_client, *words], world.environment)
        )
        return told


def _line(cell: Cell) -> str:
    return (
        f"{cell.model} {cell.stored_as} batch {cell.batch} {cell.mbps:g} Mbps {cell.way}: "
        f"split {cell.split}, {cell.iteration_s:.2f} s ± {cell.deviation:.0%}, "
        f"{size(cell.bytes_per_iteration)} an iteration"
    )


def _table(cells: list[Cell]) -> Table:
    """Every split beside the plain ways of the same cell, by the fastest of these."""
    ways = [way for way in WAYS if any(cell.way == way for cell in cells)]
    planned = [way for way in PLANNED if way in ways]
    compared = [f"{way} {how}" for how in ("faster", "fewer bytes") for way in planned]
    numbers = ("batch", "Mbps", *ways, *compared)
    table = plain_table("model", "stored", *numbers, right=len(numbers))
    rows: dict[tuple[str, str, int, float], dict[str, Cell]] = {}
    for cell in cells:
        rows.setdefault(cell.place[:4], {})[cell.way] = cell
    for (model, stored_as, batch, mbps), of in sorted(rows.items()):
        times = [_time(of.get(way)) for way in ways]
        plain = [of[way] for way in PLAIN if way in of]
        best = min(plain, key=lambda cell: cell.iteration_s) if plain else None
        ratios = [
            _ratio(best, of.get(way), value)
            for value in ("iteration_s", "bytes_per_iteration")
            for way in planned
        ]
        table.add_row(model, stored_as, str(batch), f"{mbps:g}", *times, *ratios)
    return table


def _ratio(plain: Cell | None, other: Cell | None, value: str) -> str:
    if plain is None or other is None:
        return "–"
    return f"{getattr(plain, value) / getattr(other, value):.2f}×"


def _time(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    return f"{cell.iteration_s:.2f} s" + (f" @{cell.split}" if cell.split else "")


def _crossings(cells: list[Cell]) -> Table:
    """Below which bandwidth a way is bound by the link: what computing takes is known from the
    fastest link that was timed."""
    table = plain_table("model", "stored", "way", "link-bound below, Mbps", right=1)
    fastest: dict[tuple[str, str, str], Cell] = {}
    for cell in cells:
        key = (cell.model, cell.stored_as, cell.way)
        if key not in fastest or fastest[key].mbps < cell.mbps:
            fastest[key] = cell
    for (model, stored_as, way), cell in sorted(fastest.items()):
        link_s = 8e-6 * cell.bytes_per_iteration / cell.mbps
        if link_s < 0.7 * cell.iteration_s:  # else it was bound by the link there, too
            crossing = 8e-6 * cell.bytes_per_iteration / cell.iteration_s
            table.add_row(model, stored_as, way, f"{crossing:.1f}")
    return table
