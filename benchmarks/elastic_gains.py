"""Where ERA's gain over Static comes from, and what it hangs on: simulated, ten paired seeds.

    dimensions   workers alone, batch sizes alone, both; the thesis's model; marginal gains
    rescaling    what a change of workers costs: restarted (30 s), in-process (1 s and 0.1 s)
    batch        each job's first batch, a half to four times its workload's default
    ends         a fixed number of epochs, and a target metric: large batches take more samples
    models       the thesis's mix of image models and BERT, and all six that were profiled
    recorded     the Philly trace and Pollux's eight workloads (with --data: none is shipped)

A number is how many times smaller the job completion time is than Static's on the same jobs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.elastic_runs import paired
from garfield.elastic.simulator.settings import ClusterSettings, WorkloadSettings
from garfield.report.plain_tables import plain_table

QUESTION = "Where does the gain of elastic training come from, and what does it hang on?"
POISSON = WorkloadSettings("poisson", 60)
CROWDED = WorkloadSettings("all-at-once", 60)
ALL_MODELS = "imagenet,bert,cifar10,deepspeech2,ncf,yolov3"
DIMENSIONS = (
    "static(batch=True)", "era(batch=False)", "era", "era(model='thesis')", "era-marginal",
    "era-marginal(batch=False)", "autoscaler", "afs-p",
)  # fmt: skip
ELASTIC = ("era", "era-marginal", "autoscaler", "afs-p")

Case = tuple[str, WorkloadSettings, ClusterSettings, tuple[str, ...]]


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--parts", choices=sorted(PARTS), nargs="+", default=sorted(PARTS))
    group.add_argument("--seeds", type=int, default=10, help="workloads that are drawn")
    group.add_argument("--data", type=Path, help="folder with traces/philly.csv and workloads/")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A table per part."""
    seeds = 2 if options.quick else options.seeds
    found = []
    for part in options.parts:
        table = plain_table(
            part, "policy", "JCT: times better than Static", "makespan", "rescalings", right=3
        )
        for name, workload, cluster, policies in PARTS[part](options):
            fixed = name.startswith("workload-")  # a recorded workload is not drawn
            runs = paired(workload, cluster, ("static", *policies), seeds=1 if fixed else seeds)
            for policy in policies:
                jct = runs.times_better("jct_s", "static", by=policy)
                span = runs.times_better("makespan_s", "static", by=policy)
                rescalings = sum(runs.numbers(policy, "rescalings")) / len(runs.of[policy])
                table.add_row(name, policy, str(jct), str(span), f"{rescalings:.1f}")
                found.append(
                    {
                        "part": part, "case": name, "policy": policy, "jct": jct.mean,
                        "jct_low": jct.low, "jct_high": jct.high, "makespan": span.mean,
                        "rescalings": rescalings,
                    }
                )  # fmt: skip
        console.print(table)
    return {"gains": found}


def dimensions(options: argparse.Namespace) -> Iterator[Case]:
    for workload in (POISSON, CROWDED):
        name = f"{workload.schedule}, {workload.jobs} jobs"
        yield name, workload, ClusterSettings(), DIMENSIONS


def rescaling(options: argparse.Namespace) -> Iterator[Case]:
    for cost_s in (41.0, 30.0, 7.5, 1.0, 0.1):
        yield f"{cost_s:g} s", POISSON, ClusterSettings(rescale_s=cost_s), ELASTIC


def batch(options: argparse.Namespace) -> Iterator[Case]:
    for scale in (0.5, 1.0, 2.0, 4.0):
        workload = WorkloadSettings("poisson", 60, batch_scale=scale)
        yield f"{scale:g} × default", workload, ClusterSettings(), ("era", "afs-p")


def ends(options: argparse.Namespace) -> Iterator[Case]:
    for until in ("epochs", "target"):
        for jobs in (60, 100):
            workload = WorkloadSettings("poisson", jobs, until=until)
            yield f"{until}, {jobs} jobs", workload, ClusterSettings(), ELASTIC


def models(options: argparse.Namespace) -> Iterator[Case]:
    for name, pool in (("thesis's mix", POISSON.models), ("all six", ALL_MODELS)):
        workload = WorkloadSettings("poisson", 60, models=pool)
        yield name, workload, ClusterSettings(), ELASTIC


def recorded(options: argparse.Namespace) -> Iterator[Case]:
    if options.data is None:
        return
    philly = str(options.data / "traces" / "philly.csv")
    yield (
        "Philly, 100 jobs", WorkloadSettings("trace", 100, trace=philly), ClusterSettings(),
        ELASTIC,
    )  # fmt: skip
    for path in sorted((options.data / "workloads").glob("*.csv")):
        workload = WorkloadSettings("trace", 160, trace=str(path), until="target")
        yield path.stem, workload, ClusterSettings(), ELASTIC


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Case]]] = {
    "dimensions": dimensions, "rescaling": rescaling, "batch": batch, "ends": ends,
    "models": models, "recorded": recorded,
}  # fmt: skip
