"""What planner and models say where the thesis gives numbers: its Tables 5.2, 5.3, Figures 5.3–5.6,
5.10b and 5.12.

All of it is computed, but for the layers' times, which are of one core of this machine (the
thesis's are of a GPU and of 16 cores). As there: images are stored as bytes (150,528 each), an
iteration is 2000 images, the link carries 1 Gbps. Layers count from 0, so that a layer is the
split less one.
"""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

from garfield.report.plain_tables import plain_table
from garfield.split.models import SPLIT_MODELS, load
from garfield.split.planner import choose, situation_of
from garfield.split.profile import (
    ModelProfile,
    profile_sizes,
    profile_times,
    tensor_bytes_per_sample,
)

QUESTION = "What do planner and models say where the thesis's chapter 5 has numbers?"
MEASURED = ("alexnet", "resnet18", "vgg11", "densenet121")  # of its section 5.3
GBPS = (0.05, 0.1, 0.5, 1, 2, 3, 5, 10, 15)  # of its Table 5.3
BATCHES = (1000, 2000, 3000, 4000, 6000, 7000, 8000)  # of its Figures 5.12 and 5.13
STORED = 3 * 224 * 224  # bytes of an image


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--no-times", action="store_true", help="leave out the times of layers")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A table of the planner's choices; the rest is for pictures."""
    measured = MEASURED[:1] if options.quick else MEASURED
    models = [
        {"model": name, "freeze": found.freeze, "layers": found.count}
        for name, found in SPLIT_MODELS.items()
    ]
    alexnet = profile_sizes(load("alexnet"))
    by_bandwidth = [_chosen(alexnet, 2000, gbps, name) for gbps in GBPS for name in _PLANNED]
    by_batch = [_chosen(alexnet, batch, 1, name) for batch in BATCHES for name in _PLANNED]
    layers, memory = [], []
    for name in measured:
        profile = _profile(name, timed=not options.no_times)
        layers += _layers(profile)
        memory += _memory(name)
        console.print(f"{name}: {len(profile.layers)} layers", style="dim")
    console.print(_table("Gbps", "gbps", by_bandwidth), _table("batch", "batch", by_batch))
    return {
        "models": models, "by_bandwidth": by_bandwidth, "by_batch": by_batch, "layers": layers,
        "memory": memory,
    }  # fmt: skip


_PLANNED = ("adaptive", "thesis", "plain")


def _chosen(profile: ModelProfile, batch: int, gbps: float, planner: str) -> dict[str, Any]:
    """AlexNet's layer, and what travels in an iteration; `plain` streams the images."""
    situation = situation_of(
        profile, stored_bytes=STORED, batch=batch, bandwidth_bps=gbps * 1e9,
        freeze=SPLIT_MODELS["alexnet"].freeze,
    )  # fmt: skip
    split = 0 if planner == "plain" else choose(situation, planner).split
    return {
        "gbps": gbps, "batch": batch, "planner": planner, "layer": split - 1,
        "mib": situation.iteration_bytes(split) / 2**20,
    }  # fmt: skip


def _profile(name: str, *, timed: bool) -> ModelProfile:
    import torch

    if not timed:
        return profile_sizes(load(name))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return profile_times(load(name), batch=8, repeats=3)
    finally:
        torch.set_num_threads(threads)


def _layers(profile: ModelProfile) -> list[dict[str, Any]]:
    return [
        {
            "model": profile.model, "layer": index, "name": layer.name,
            "output_kb": layer.output_bytes / 1e3,
            "ms": None if layer.forward_s is None else 1e3 * layer.forward_s,
            "memory_mb": (layer.memory_bytes or 0) / 1e6,
        }
        for index, layer in enumerate(profile.layers)
    ]  # fmt: skip


def _memory(name: str) -> list[dict[str, Any]]:
    """Tensors of a forward pass: a batch of 100 before the split, and of 1000 behind it."""
    model = load(name)
    sizes, count = profile_sizes(model), len(model.layers)
    whole = 1000 * tensor_bytes_per_sample(model.piece(0, count), model.input_shape) / 1e9
    found = [{"model": name, "split": 0, "part": "no split", "gb": whole}]
    for split in range(1, model.max_split() + 1):
        entering = sizes.layers[split - 1].shape
        before = 100 * tensor_bytes_per_sample(model.piece(0, split), model.input_shape) / 1e9
        after = 1000 * tensor_bytes_per_sample(model.piece(split, count), entering) / 1e9
        for part, gb in (("before, 100 images", before), ("behind, 1000 images", after)):
            found.append({"model": name, "split": split, "part": part, "gb": gb})
    return found


def _table(title: str, by: str, found: list[dict[str, Any]]) -> Table:
    numbers = (title, "adaptive: layer", "MiB", "thesis: layer", "MiB", "plain: MiB")
    table = plain_table(*numbers, right=len(numbers))
    for value in dict.fromkeys(each[by] for each in found):
        of = {each["planner"]: each for each in found if each[by] == value}
        cells = [f"{value:g}"]
        for planner in ("adaptive", "thesis"):
            cells += [str(of[planner]["layer"]), f"{of[planner]['mib']:.1f}"]
        table.add_row(*cells, f"{of['plain']['mib']:.1f}")
    return table
