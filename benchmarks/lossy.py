"""UDP against gRPC, on a clean link and on links that lose packets; and what robustness costs.

For each share of loss a network namespace of its own is made, in which the
kernel (nftables) really drops that share of all packets of TCP and UDP alike;
packets have at most 1,500 bytes, as on Ethernet, and are not sent in bundles, so
TCP meets the loss packet by packet. A server asks all workers for a vector,
round after round, by gRPC and by UDP in turn: ratios are from one run. A round
by UDP brings what came, the rest is filled; one by gRPC brings everything, and
takes as long as TCP needs. The delay of the link is that of the loopback: TCP
suffers more from loss where the way is longer, which cannot be had here.

Where no namespace may be made, both are run on the plain loopback, where nothing
is lost, and UDP once more with loss injected by the library itself; gRPC has no
such line then.

What a rule costs is told from within a run: a step with it, against the same
step with the time of plain averaging in place of the rule's.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

QUESTION = "How many rounds a second by UDP and by gRPC, and what do robust rules cost?"
LOSSES = (0.0, 0.01, 0.1)
HOST = "10.9.9.1"
CIFARNET = 1_756_426  # parameters, as in the paper
CLAIMS = {
    "multi-krum": "19 % (weak resilience)",
    "bulyan": "43 % (strong)",
    "udp": "up to 6 times gRPC's speed at 10 % loss",
}
_NAMESPACE = """
ip link set lo up mtu 1500 gso_max_segs 1 && ip addr add {host}/32 dev lo &&
nft add table inet lossy &&
nft add chain inet lossy incoming '{{ type filter hook input priority 0; }}' &&
nft add rule inet lossy incoming numgen random mod 1000 '<' {permille} drop &&
exec "$@"
"""


def add_options(group: Any) -> None:
    """Of this benchmark."""
    group.add_argument("--lossy-workers", type=int, default=4, help="workers that are asked (4)")
    group.add_argument(
        "--overhead", action="store_true", help="also train, to see what the rules cost"
    )


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Print tables; what is returned goes to a file."""
    why = _refusal()
    if why is not None:
        console.print(
            f"[yellow]No packets can be dropped here ({why}): loss is injected into UDP alone, and "
            "there is nothing to compare. Needs unshare, ip and nft (package nftables).[/]"
        )
    lines = [_line(loss, options, real=why is None) for loss in LOSSES]
    console.print(_table(lines, options))
    console.print(f"AggregaThor's claim: {CLAIMS['udp']}.")
    results: dict[str, Any] = {
        "links": "real" if why is None else "injected", "rounds": lines, "rates": _rates(lines),
    }  # fmt: skip
    if options.overhead:
        found = _overhead(options, console)
        results["overhead"] = found
        results["rules"] = [
            {"rule": name, "overhead_percent": 100 * _added(line, found), **line}
            for name, line in found.items()
        ]
    return results


def _refusal() -> str | None:
    for program in ("unshare", "ip", "nft"):
        if shutil.which(program) is None:
            return f"{program} is missing"
    done = subprocess.run(_inside(0.0, ["true"]), capture_output=True, text=True, check=False)
    return done.stderr.strip() or "refused" if done.returncode else None


def _inside(loss: float, command: list[str]) -> list[str]:
    script = _NAMESPACE.format(host=HOST, permille=round(1000 * loss))
    return ["unshare", "-rn", "sh", "-c", script, "sh", *command]


def _line(loss: float, options: argparse.Namespace, *, real: bool) -> dict[str, Any]:
    job = {
        "host": HOST if real else "127.0.0.1", "workers": options.lossy_workers,
        "length": 200_000 if options.quick else CIFARNET, "seconds": 5 if options.quick else 30,
        "injected": 0.0 if real else loss,
    }  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.lossy_rounds", json.dumps(job)]
    command = _inside(loss, command) if real else command
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    met_loss = [kind for kind in found["took"] if real or not loss or kind == "udp"]
    rates = {kind: len(found["took"][kind]) / sum(found["took"][kind]) for kind in met_loss}
    return {
        "loss": loss, "per_s": rates, "came": found["came"], "rounds": len(found["took"]["udp"]),
        "median_s": {kind: median(found["took"][kind]) for kind in met_loss},
        "ratio": rates["udp"] / rates["grpc"] if "grpc" in rates else None,
    }  # fmt: skip


def _rates(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rounds a second, an entry for each loss and kind of link."""
    names = {"grpc": "gRPC", "udp": "UDP"}
    return [
        {"lost_percent": 100 * line["loss"], "link": names[kind], "rounds_per_s": rate}
        for line in lines
        for kind, rate in line["per_s"].items()
    ]


def _table(lines: list[dict[str, Any]], options: argparse.Namespace) -> Table:
    length = 200_000 if options.quick else CIFARNET
    table = Table(
        title=f"{options.lossy_workers} workers, vectors of {length:,} float32, rounds a second",
        title_justify="left", box=box.SIMPLE_HEAD,
    )  # fmt: skip
    for heading in ("lost", "gRPC", "UDP", "ratio", "came by UDP", "median rounds, ms", "rounds"):
        table.add_column(heading, justify="right")
    for line in lines:
        kinds = [kind for kind in ("grpc", "udp") if kind in line["per_s"]]
        rates = {kind: f"{line['per_s'][kind]:.2f}" for kind in kinds}
        table.add_row(
            f"{line['loss']:.0%}", rates.get("grpc", "–"), rates["udp"],
            "–" if line["ratio"] is None else f"{line['ratio']:.2f}", f"{line['came']['udp']:.1%}",
            ", ".join(f"{1000 * line['median_s'][kind]:.0f}" for kind in kinds),
            str(line["rounds"]),
        )  # fmt: skip
    return table


def _overhead(options: argparse.Namespace, console: Console) -> dict[str, dict[str, float]]:
    """What each rule adds to a step of real processes, within the same run."""
    from garfield.apps.settings import Settings
    from garfield.launch.processes import run_processes

    base = Settings().updated(
        model="mnist_cnn", workers=19, steps=10 if options.quick else 40, evaluate_every=0
    )
    runs = {
        "average": base.updated(app="vanilla"),
        "multi-krum": base.updated(app="aggregathor", gar="multi-krum", f_workers=4),
        "bulyan": base.updated(app="aggregathor", gar="bulyan", f_workers=4),
    }
    found: dict[str, dict[str, float]] = {}
    for name, settings in runs.items():
        events: list[Any] = []
        run_processes(settings, events.append)
        found[name] = {
            part: _middle([event[part] for event in events if event["event"] == "step"])
            for part in ("time_s", "aggregation_s")
        }
    console.print(_overhead_table(found))
    return found


def _added(line: dict[str, float], found: dict[str, dict[str, float]]) -> float:
    """What a rule adds to a step: to the same step with plain averaging in its place."""
    plain = line["time_s"] - line["aggregation_s"] + found["average"]["aggregation_s"]
    return line["time_s"] / plain - 1


def _middle(sums: list[float]) -> float:
    """The median of what each step added."""
    return median(after - before for before, after in pairwise(sums))


def _overhead_table(found: dict[str, dict[str, float]]) -> Table:
    table = Table(
        title="19 workers train mnist_cnn, f = 4, no loss; median step",
        title_justify="left", box=box.SIMPLE_HEAD,
    )  # fmt: skip
    for heading in ("rule", "step, ms", "aggregation, ms", "overhead", "AggregaThor's claim"):
        table.add_column(heading, justify="right" if "ms" in heading else "left")
    for name, line in found.items():
        table.add_row(
            name, f"{1000 * line['time_s']:.0f}", f"{1000 * line['aggregation_s']:.1f}",
            f"{_added(line, found):.1%}", CLAIMS.get(name, ""),
        )  # fmt: skip
    return table
