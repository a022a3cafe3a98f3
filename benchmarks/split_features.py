"""What halving and packing features costs and saves: accuracy and bytes, float16 and zlib.

EfficientNet-Lite0, really pretrained, is fine-tuned on a folder of real images (`--images DIR`,
with a folder `train` and one `val` of classes each; the clothes that ship with the library if none
is given), cut behind its last frozen layer. Features travel as float32 and float16, plain and
packed by zlib. All else is the same: the same seeds, batches and initial weights. Told are bytes
of an epoch that cross the link, and what of the images in `val` is named rightly at the end, with
its spread over seeds. zlib loses nothing: there only bytes may differ.

Features are kept by the client after the first epoch, so that a server computes each but once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.console import Console

from benchmarks.split_world import checked
from garfield.report.plain_tables import plain_table
from garfield.split.demo_images import write_clothes
from garfield.split.models import load
from garfield.split.server.serving import running_server
from garfield.split.server.settings import ServeSettings
from garfield.split.stores import StoreSettings
from garfield.split.stores.files import write_tokens

QUESTION = "What do float16 and zlib do to a split's bytes, and to its accuracy?"
MODEL, TOKEN, SIDE = "efficientnet_lite0", "features", 224
FORMS = [(kind, packing) for kind in ("float32", "float16") for packing in ("none", "zlib")]


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--images", type=Path, help="a folder with train/CLASS and val/CLASS")
    group.add_argument("--epochs", type=int, default=5, help="of each training")
    group.add_argument("--seeds", type=int, default=3, help="trainings of each kind")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A line for each form of features."""
    seeds = range(1 if options.quick else options.seeds)
    epochs = 1 if options.quick else options.epochs
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_tokens(home / "tokens.json", {TOKEN: ["."]})
        train, val = _stocked(home, options.images, quick=options.quick)
        settings = ServeSettings(
            store=(home / "data").as_uri(), port=0,
            connection=StoreSettings(file_tokens=str(home / "tokens.json")),
        )  # fmt: skip
        with running_server(settings) as server:
            lines = [
                _line(kind, packing, [
                    _trained(home, (train, val), server.url, (kind, packing), seed, epochs)
                    for seed in seeds
                ])
                for kind, packing in FORMS
            ]  # fmt: skip
    table = plain_table("features", "packed", "MB an epoch", "fewer", "accuracy", right=3)
    for line in lines:
        spread = f" ± {line['deviation']:.2%}" if len(seeds) > 1 else ""
        table.add_row(
            line["features"], line["packed"], f"{line['bytes'] / 1e6:.1f}",
            f"{lines[0]['bytes'] / line['bytes']:.2f}×", f"{line['accuracy']:.2%}{spread}",
        )  # fmt: skip
    console.print(table)
    return {"lines": lines}


def _line(kind: str, packing: str, summaries: list[dict[str, Any]]) -> dict[str, Any]:
    accuracies = [each["accuracy"] for each in summaries]
    return {
        "features": kind,
        "packed": packing,
        "bytes": summaries[0]["epochs"][0]["received_bytes"],
        "accuracy": fmean(accuracies),
        "deviation": stdev(accuracies) if len(accuracies) > 1 else 0.0,
        "accuracies": accuracies,
    }


def _stocked(home: Path, images: Path | None, *, quick: bool) -> tuple[str, str]:
    """Addresses of packed images to train on, and to judge by."""
    if images is None:
        images = home / "images"
        for part, count in (("train", 40 if quick else 1000), ("val", 40 if quick else 500)):
            write_clothes(images / part, count)
    addresses = []
    for part in ("train", "val"):
        addresses.append((home / "data" / part).as_uri())
        words = ["-m", "garfield", "split", "put", str(images / part), "--to", addresses[-1]]
        checked([sys.executable, *words, "--side", str(SIDE)], dict(os.environ))
    return addresses[0], addresses[1]


def _trained(
    home: Path,
    data: tuple[str, str],
    url: str,
    form: tuple[str, str],
    seed: int,
    epochs: int,
) -> dict[str, Any]:
    """What a training tells at its end; those of one form share what was extracted."""
    kind, packing = form
    cache = home / f"{kind}-{packing}"
    with tempfile.TemporaryDirectory(dir=home) as out:
        words = [
            "-m", "garfield", "split", "train", "--data", data[0], "--test-data", data[1],
            "--model", MODEL, "--server", url, "--split", str(load(MODEL).max_split()),
            "--features", kind, "--compression", packing, "--cache", str(cache),
            "--epochs", str(epochs), "--batch", "64", "--seed", str(seed), "--plots", "none",
            "--json", "--out", f"{out}/run",
        ]  # fmt: skip
        told = checked([sys.executable, *words], os.environ | {"GARFIELD_SPLIT_TOKEN": TOKEN})
    found: dict[str, Any] = json.loads(told)
    return found
