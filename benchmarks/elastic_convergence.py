"""How well a training converges whose batch is enlarged on the way: Figure 4.9 of the thesis.

Two real workers train a perceptron on Fashion-MNIST through the job library, from a batch of 64
each. A controller doubles the batch after every epoch, while they train, until it reaches a bound;
the learning rate follows the samples of a step. Bounds:

    64      no change: Static
    256     good by the thesis
    1024    excessive by the thesis
    4096    with two workers, the 8192 samples a step that the thesis's eight had at 1024

The learning rate is the thesis's by sample, 0.08 for 512, and a tenth of it in the last third.
Top-1 and top-5 accuracy are those of the test set after each epoch. A bound is good if the
accuracy at the end is within a point of Static's, the mean over seeds. Every training is kept in
results/elastic_convergence/ and not run again (--anew does).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.alone import alone
from benchmarks.kept_runs import kept
from garfield.core.errors import RunError
from garfield.elastic.job.coordination import BatchSize
from garfield.elastic.job.environment import environment_of
from garfield.elastic.job.on_sqlite import SqliteCoordination
from garfield.report.plain_tables import plain_table

QUESTION = "Does a training converge as well when its batch is doubled up to a bound (Figure 4.9)?"
WORKERS, BATCH, BOUNDS = 2, 64, (64, 256, 1024, 4096)
RATE = 0.08 / 512
"""Learning rate for each sample of a step."""
_LOOK_S = 0.02


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--convergence-data", default="fashion", help="fashion, or fashion-small")
    group.add_argument("--convergence-data-dir", help="where it lies, as for garfield train")
    group.add_argument("--bounds", type=int, nargs="+", default=list(BOUNDS), help="of a batch")
    group.add_argument("--epochs", type=int, default=15, help="of each training")
    group.add_argument("--seeds", type=int, default=3, help="trainings with each bound")
    group.add_argument("--anew", action="store_true", help="train also what is kept")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A row for each bound."""
    seeds, epochs = (1, 3) if options.quick else (options.seeds, options.epochs)
    curves: dict[int, list[list[dict[str, Any]]]] = {bound: [] for bound in options.bounds}
    for seed in range(seeds):
        for bound in options.bounds:
            what = {
                "data": options.convergence_data, "bound": bound, "epochs": epochs, "seed": seed,
                "batch": BATCH, "workers": WORKERS, "rate": RATE,
            }  # fmt: skip
            where = options.convergence_data_dir
            curves[bound].append(
                kept(
                    "elastic_convergence", f"{bound}-{seed}", what,
                    lambda w=what, d=where: _trained(w, d), fresh=options.anew,
                )
            )  # fmt: skip
    final = [_final(bound, curves[bound], curves[options.bounds[0]]) for bound in options.bounds]
    table = plain_table(
        "bound", "top-1, %", "against Static", "top-5, %", "against Static", "seconds", right=5
    )
    for line in final:
        table.add_row(
            line["bound"], f"{line['top1']:.2f} ± {line['top1_spread']:.2f}",
            f"{line['top1_less']:+.2f}", f"{line['top5']:.2f}", f"{line['top5_less']:+.2f}",
            f"{line['seconds']:.0f}",
        )  # fmt: skip
    console.print(table)
    lines = [line for bound in options.bounds for line in _means(bound, curves[bound])]
    return {"curves": lines, "final": final}


def _final(
    bound: int, ours: Sequence[list[dict[str, Any]]], static: Sequence[list[dict[str, Any]]]
) -> dict[str, Any]:
    """What trainings ended with, and how much that is above Static's: means over seeds."""
    found: dict[str, Any] = {"bound": _name(bound)}
    for key in ("top1", "top5", "seconds"):
        values = [curve[-1][key] for curve in ours]
        found[key] = statistics.fmean(values)
        found[f"{key}_spread"] = statistics.pstdev(values)
        found[f"{key}_less"] = found[key] - statistics.fmean(curve[-1][key] for curve in static)
    return found


def _means(bound: int, curves: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A curve, the mean of all seeds'."""
    return [
        {
            "bound": _name(bound),
            "epoch": moments[0]["epoch"],
            **{
                key: statistics.fmean(moment[key] for moment in moments)
                for key in ("top1", "top5", "seconds", "batch")
            },
        }
        for moments in zip(*curves, strict=True)
    ]


def _name(bound: int) -> str:
    return "static" if bound == BATCH else f"bound {bound}"


def _trained(what: dict[str, Any], data_dir: str | None) -> list[dict[str, Any]]:
    """Accuracies after each epoch."""
    with alone(), tempfile.TemporaryDirectory(prefix="garfield-convergence-") as directory:
        job, record = Path(directory) / "job.sqlite", Path(directory) / "record.jsonl"
        members = [f"w{rank}" for rank in range(WORKERS)]
        agreed = SqliteCoordination(job)
        agreed.propose(members, after=0)
        words = [str(record), json.dumps(what), data_dir or ""]
        workers = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.elastic_convergence", *words],
                env={**os.environ, **environment_of(job, member)},
            )
            for member in members
        ]
        try:
            _double(agreed, workers, what["bound"])
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()
            agreed.close()
        if codes := [worker.returncode for worker in workers if worker.returncode]:
            raise RunError(f"Workers of the training ended with {codes}.")
        return [json.loads(line) for line in record.read_text().splitlines()]


def _double(
    agreed: SqliteCoordination, workers: Sequence[subprocess.Popen[bytes]], bound: int
) -> None:
    """Be the controller: double the batch with every epoch, up to the bound."""
    size, seen = BATCH, 0
    while any(worker.poll() is None for worker in workers):
        epoch = max((told.get("epoch", 0) for told in agreed.reports().values()), default=0)
        if epoch > seen and size < bound:
            size = min(2 * size, bound)
            agreed.set_batch(BatchSize(size, time.time_ns() // 1000))
        seen = max(seen, epoch)
        if any(worker.poll() for worker in workers):
            return  # one has failed: the others would wait for it
        time.sleep(_LOOK_S)


# -- a worker -------------------------------------------------------------------------------------


def work(record: Path, what: dict[str, Any], data_dir: str | None) -> None:
    """Train; the first worker writes down the accuracies."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy
    from torch.utils.data import Dataset

    from garfield.data import load
    from garfield.elastic.job import ElasticOptions, ElasticTraining

    class Rows(Dataset[Any]):
        """Images fetched by the batch: one copy, and no loop over samples."""

        def __len__(self) -> int:
            return len(labels)

        def __getitems__(self, indices: list[int]) -> Any:
            return images[indices], labels[indices]

    torch.set_num_threads(1)
    torch.manual_seed(what["seed"])
    data = load(what["data"], data_dir)
    images, labels = (torch.from_numpy(x) for x in (data.images("train"), data.labels("train")))
    tests, answers = (torch.from_numpy(x) for x in (data.images("test"), data.labels("test")))
    pixels = images[0].numel()
    model = nn.Sequential(nn.Flatten(), nn.Linear(pixels, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    options = ElasticOptions(batch=what["batch"], seed=what["seed"], poll_s=0.02, report_every=5)
    whole = {"collate_fn": lambda batch: batch}
    first = what["rate"] * what["workers"] * what["batch"]
    with ElasticTraining(model, optimizer, Rows(), options, loader=whole) as job:
        began = time.monotonic()
        for epoch in job.epochs(what["epochs"]):
            for group in optimizer.param_groups:
                group["lr"] = first if 3 * epoch < 2 * what["epochs"] else first / 10
            for x, y in job.batches():
                with job.step():
                    job.backward(cross_entropy(job.model(x), y))
            if job.rank == 0:
                seconds = time.monotonic() - began
                with torch.no_grad():
                    best = model(tests).topk(5).indices == answers[:, None]
                line = {
                    "epoch": epoch + 1, "seconds": seconds, "batch": job.batch,
                    "step": job.step_number, "top1": 100 * best[:, 0].float().mean().item(),
                    "top5": 100 * best.any(1).float().mean().item(),
                }  # fmt: skip
                with record.open("a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    work(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3] or None)
