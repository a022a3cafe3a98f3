"""Parameters of the models of Table 3.1 of Guirguis's thesis, counted on the models themselves.

Each is built on torch's device "meta", which holds shapes and no numbers: VGG-19 takes no time.
"""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from garfield.models import MODELS
from garfield.report.plain_tables import plain_table

QUESTION = "How many parameters have the models of Table 3.1?"


def add_options(group: argparse._ArgumentGroup) -> None:
    """It has none."""


def run(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Print a table; all counts are returned."""
    table = plain_table("model", "parameters", "Table 3.1", "MB", right=3)
    found = []
    for name, model in MODELS.items():
        if model.table is None:
            continue
        parameters = _count(name)
        megabytes = 4 * parameters / 2**20
        table.add_row(name, f"{parameters:,}", f"{model.table:,}", f"{megabytes:.1f}")
        found.append({"model": name, "parameters": parameters, "megabytes": megabytes})
    console.print(table)
    return found


def _count(name: str) -> int:
    import torch

    model = MODELS[name]
    with torch.device("meta"):
        network = model.build(10, model.image[0])
    return sum(each.numel() for each in network.parameters() if each.requires_grad)
