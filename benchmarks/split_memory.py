"""Memory of both sides, whole batches of AlexNet at the client beside a split: Figure 5.14.

Every batch is trained on for one iteration, plain (all of it through all layers at the client) and
split, with two COS batches: as many images as one request asks for, and a fifth of that. A request
is an object of `--piece` images, an eighth of the thesis's 1000, and so are batches; the split is
where the adaptive planner cuts at an eighth of its 1 Gbps. The server has a worker for each of 8
requests at once, and its memory is what its control group counts of all of them, idle ones
included; the client's is its largest resident set. Nothing is limited: the store is a directory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.split_world import checked
from garfield.core.errors import RunError
from garfield.report.plain_tables import plain_table
from garfield.split.demo_images import write_clothes
from garfield.split.models import SPLIT_MODELS, load
from garfield.split.planner import choose, situation_of
from garfield.split.profile import profile_sizes
from garfield.split.scheduler import Batching
from garfield.split.server.serving import running_server
from garfield.split.server.settings import ServeSettings
from garfield.split.stores import StoreSettings
from garfield.split.stores.files import write_tokens

QUESTION = "How much memory do both sides take, beside plain fine-tuning?"
MODEL, TOKEN, STORED = "alexnet", "memory", 3 * 224 * 224
_WORKERS, _BUDGET = 8, "12GiB"
_SCALE = 8  # pieces, batches and bandwidth are this many times smaller than the thesis's


@dataclass(frozen=True)
class Peak:
    """What one iteration took."""

    batch: int
    way: str
    split: int
    client_bytes: int
    server_bytes: int


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--piece", type=int, default=125, help="images of an object")
    group.add_argument("--pieces", type=int, nargs="+", default=[1, 2, 4, 6, 8, 12])


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A line for each batch and way, then all of them."""
    piece = 8 if options.quick else options.piece
    pieces = [1, 2] if options.quick else options.pieces
    cos = {f"split, COS batch {batch}": batch for batch in (piece, max(1, piece // 5))}
    found: list[Peak] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_tokens(home / "tokens.json", {TOKEN: ["."]})
        for count in pieces:
            batch = count * piece
            data = _stocked(home, batch, piece)
            split = _split_for(batch)
            found.append(_trained(home, data, batch, "plain", ["--baseline", "--chunk", "0"]))
            for way, fixed in cos.items():
                found.append(_served(home, data, batch, way, split, fixed))
            told = ", ".join(f"{p.way}: {_gib(p)}" for p in found if p.batch == batch)
            console.print(f"{batch}: {told} GiB", soft_wrap=True)
    table = plain_table("batch", "way", "split", "client, GiB", "server, GiB", "both", right=4)
    for each in found:
        sides = (each.client_bytes / 2**30, each.server_bytes / 2**30)
        table.add_row(
            str(each.batch), each.way, str(each.split), *(f"{side:.2f}" for side in sides),
            _gib(each),
        )  # fmt: skip
    console.print(table)
    return {"peaks": [_told(each) for each in found]}


def _told(peak: Peak) -> dict[str, Any]:
    total = peak.client_bytes + peak.server_bytes
    return asdict(peak) | {"total_gib": total / 2**30, "thesis_batch": peak.batch * _SCALE}


def _gib(peak: Peak) -> str:
    return f"{(peak.client_bytes + peak.server_bytes) / 2**30:.2f}"


def _stocked(home: Path, images: int, piece: int) -> str:
    """A directory of so many images in objects; its address."""
    pictures, data = home / f"images-{images}", home / "data" / f"of-{images}"
    write_clothes(pictures, images)
    words = [
        "-m", "garfield", "split", "put", str(pictures), "--to", data.as_uri(), "--stored-as",
        "uint8", "--side", "224", "--images-per-object", str(piece),
    ]  # fmt: skip
    checked([sys.executable, *words], dict(os.environ))
    return data.as_uri()


def _split_for(batch: int) -> int:
    """Where the adaptive planner cuts for that batch, by bytes alone, as the thesis does."""
    situation = situation_of(
        profile_sizes(load(MODEL)), stored_bytes=STORED, batch=batch, bandwidth_bps=1e9 / _SCALE,
        freeze=SPLIT_MODELS[MODEL].freeze,
    )  # fmt: skip
    return choose(situation, "adaptive").split


def _served(home: Path, data: str, batch: int, way: str, split: int, fixed: int) -> Peak:
    settings = ServeSettings(
        store=(home / "data").as_uri(), port=0, budget=_BUDGET, workers=_WORKERS,
        batching=Batching(adapt=False, fixed_batch=fixed),
        connection=StoreSettings(file_tokens=str(home / "tokens.json")),
    )  # fmt: skip
    with running_server(settings) as server:
        memory = server.service.pool.devices["cpu0"]
        words = ["--server", server.url, "--split", str(split), "--connections", str(_WORKERS)]
        # the first lets the server measure the model, which takes memory of its own
        _trained(home, data, batch, way, words)
        memory.forget_peak()  # type: ignore[attr-defined]
        found = _trained(home, data, batch, way, words)
        return Peak(batch, way, split, found.client_bytes, memory.peak_bytes)


def _trained(home: Path, data: str, batch: int, way: str, words: list[str]) -> Peak:
    """One epoch, which is one iteration, by a process of its own."""
    with tempfile.TemporaryDirectory(dir=home) as out:
        done = subprocess.run(
            [sys.executable, "-m", "garfield", "split", "train", "--data", data, "--model", MODEL,
             "--batch", str(batch), "--epochs", "1", "--threads", "1", "--plots", "none", "--json",
             "--out", f"{out}/run", *words],
            env=os.environ | {"GARFIELD_SPLIT_TOKEN": TOKEN}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    if done.returncode:
        raise RunError(f"{way}, batch {batch}: {done.stderr[-500:]}")
    summary = json.loads(done.stdout)
    return Peak(batch, way, summary["split"] or 0, summary["peak_memory_client_bytes"], 0)
