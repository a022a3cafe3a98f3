"""DRACO's encoder and decoders, beside Tables 5 and 6 of Chen et al., ICML 2018.

Their setting: n = 45 workers, f = 5 of them (11.1 %) reverse their gradients, ResNet-152
and VGG-19. The repetition code takes r = 15 here, the least that is 2 f + 1 or more and divides
45; the cyclic code r = 11. One worker's encoding is measured at full size. The rows of all
workers do not fit in memory at full size (43 GB for ResNet-152 and the cyclic code), so decoding
is measured on as many columns as do fit, and scaled up: that it is linear in d is shown by the
time for half of the columns. The published figures are of other machines (45 of them), so only
what stands in one row or column of them compares: coded decoding against the geometric median.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.timing import seconds

QUESTION = "What do DRACO's codes cost, in time and bytes, against a robust rule?"
MODELS = {"ResNet-152": 60_192_808, "VGG-19": 143_667_240}
N, F = 45, 5
REDUNDANCY = {"repetition": 15, "cyclic": 11}
PUBLISHED = {  # encode and decode in s, under reversed gradients
    ("ResNet-152", "repetition"): (0.29, 7.54),
    ("ResNet-152", "cyclic"): (5.95, 6.65),
    ("ResNet-152", "geometric-median"): (0.0, 161.29),
    ("VGG-19", "repetition"): (0.20, 3.04),
    ("VGG-19", "cyclic"): (4.02, 3.65),
    ("VGG-19", "geometric-median"): (0.0, 39.02),
}
REPEATS = 3


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--gigabytes", type=float, default=3.0, help="for rows to decode (3)")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Print one table for both models; all times are returned."""
    room = int((0.2 if options.quick else options.gigabytes) * 2**30)
    models = {"ResNet-152 / 100": 601_928} if options.quick else MODELS
    decoding = {name: _decoding(name, room) for name in (*REDUNDANCY, "geometric-median")}
    table = Table(title=_title(decoding), title_justify="left", box=box.SIMPLE_HEAD)
    headings = ("model", "by", "row MB", "encode s", "decode s", "half/whole")
    for heading in (*headings, "published: encode", "decode"):
        table.add_column(heading, justify="left" if heading in ("model", "by") else "right")
    lines = []
    for model, d in models.items():
        for by, (columns, whole_s, half_s) in decoding.items():
            encode_s = _encode_s(by, d) if by in REDUNDANCY else 0.0
            decode_s = whole_s * d / columns
            told = PUBLISHED.get((model, by))
            table.add_row(
                model, by, f"{_row_bytes(by, d) / 1e6:.0f}", f"{encode_s:.2f}", f"{decode_s:.2f}",
                f"{half_s / whole_s:.2f}", *(f"{t:g}" if told else "–" for t in told or (0, 0)),
            )  # fmt: skip
            lines.append({
                "model": model, "d": d, "by": by, "encode_s": encode_s, "decode_s": decode_s,
                "row_bytes": _row_bytes(by, d), "measured_columns": columns,
                "measured_s": whole_s, "half_s": half_s, "published_s": told,
            })  # fmt: skip
    console.print(table)
    return {"n": N, "f": F, "redundancy": REDUNDANCY, "lines": lines}


def _title(decoding: dict[str, tuple[int, float, float]]) -> str:
    sizes = ", ".join(f"{columns:,} ({name})" for name, (columns, *_) in decoding.items())
    return (
        f"n = {N}, f = {F} reversed gradients; fastest of {REPEATS}. Encoding is measured at full "
        f"size, decoding at d = {sizes} and scaled by d."
    )


def _decoding(by: str, room: int) -> tuple[int, float, float]:
    """How many columns were measured, the time for them, and for half of them."""
    rows = _rows(by, room)
    columns = len(rows[0]) // (2 if by == "cyclic" else 1)
    whole_s = _decode_s(by, rows)
    for j, row in enumerate(rows):
        half = np.split(row, 4)  # real and imaginary parts stay one after the other
        rows[j] = np.concatenate([half[0], half[2]]) if by == "cyclic" else row[: columns // 2]
    return columns, whole_s, _decode_s(by, rows)


def _rows(by: str, room: int) -> list[Any]:
    """What arrives: honest rows as they are encoded, and f of them reversed."""
    width = 16 if by == "cyclic" else 4
    d = room // (N * width) // 4 * 4
    rng = np.random.default_rng(0)
    if by == "geometric-median":
        rows = [rng.standard_normal(d, np.float32) for _ in range(N)]
    else:
        code, start = _code(by), rng.standard_normal(d, np.float32)
        rows = [_coded(code, j, start) for j in range(N)]
    for j in range(0, N, N // F):
        rows[j] *= -100
    return rows


def _coded(code: Any, worker: int, start: Any) -> Any:
    """A worker's row where gradient k is (1 + k / n) · start; encoding is linear."""
    factors = code.encode(worker, (np.float32([1 + k / N]) for k in code.computed_by(worker)))
    return np.concatenate([start.astype(code.dtype) * factor for factor in factors])


def _decode_s(by: str, rows: list[Any]) -> float:
    from garfield.gars import GARS

    if by == "geometric-median":
        return min(seconds(lambda: GARS[by](rows, f=F)) for _ in range(REPEATS))
    code, secret = _code(by), np.random.default_rng()
    found = code.decode(rows, secret=secret)
    assert len(found.liars) == F
    return min(seconds(lambda: code.decode(rows, secret=secret)) for _ in range(REPEATS))


def _encode_s(by: str, d: int) -> float:
    """One worker's, its gradients being there already."""
    code = _code(by)
    gradient = np.random.default_rng(0).standard_normal(d, np.float32)

    def same() -> Iterator[Any]:
        for _ in range(code.r):
            yield gradient

    return min(seconds(lambda: code.encode(0, same())) for _ in range(2))


def _row_bytes(by: str, d: int) -> int:
    return d * (16 if by == "cyclic" else 4)


def _code(by: str) -> Any:
    from garfield.coding import make_code

    return make_code(by, N, F, REDUNDANCY[by])
