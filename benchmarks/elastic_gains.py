"""Where ERA's gain over Static comes from, and what it hangs on: simulated, ten paired seeds.

    dimensions   workers alone, batch sizes alone, both; the thesis's model; marginal gains
    rescaling    what a change of workers costs: restarted (30 s), in-process (1 s and 0.1 s)
    batch        each job's first batch, a half to four times its workload's default
    ends         a fixed number of epochs, and a target metric: large batches take more samples
    models       the thesis's mix of image models and BERT, and all six that were profiled
    recorded     the Philly trace and Pollux's eight workloads (with --data: none is shipped)

A number is how many times smaller the job completion time is than Static's on the same jobs. Every
case is kept in results/elastic_gains/ as soon as it is done, and not simulated again (--anew does).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.alone import alone
from benchmarks.elastic_runs import Interval, paired, ratio
from benchmarks.kept_runs import kept
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
_RECORDED = "workload-"
ELASTIC = ("era", "era-marginal", "autoscaler", "afs-p")

Case = tuple[str, WorkloadSettings, ClusterSettings, tuple[str, ...]]


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--parts", choices=sorted(PARTS), nargs="+", default=sorted(PARTS))
    group.add_argument("--seeds", type=int, default=10, help="workloads that are drawn")
    group.add_argument("--data", type=Path, help="folder with traces/philly.csv and workloads/")
    group.add_argument("--anew", action="store_true", help="simulate also what is kept")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A table per part."""
    seeds = 2 if options.quick else options.seeds
    found = []
    for part in options.parts:
        table = plain_table(
            part, "policy", "JCT: times better than Static", "makespan", "rescalings", right=3
        )
        lines = [
            line for case in PARTS[part](options) for line in _gains(case, seeds, options.anew)
        ]
        for line in lines + _over_workloads(lines):
            jct, span = (str(Interval(*line[key])) for key in ("jct", "makespan"))
            table.add_row(line["case"], line["policy"], jct, span, f"{line['rescalings']:.1f}")
            found.append({"part": part, **line})
        console.print(table)
    return {"gains": found}


def _gains(case: Case, seeds: int, anew: bool) -> list[dict[str, Any]]:
    """A line for each policy of a case."""
    name, workload, cluster, policies = case
    seeds = 1 if name.startswith(_RECORDED) else seeds  # a recorded workload is not drawn
    source = None if workload.trace is None else Path(workload.trace).name
    what = {
        "workload": {**asdict(workload), "trace": source}, "cluster": asdict(cluster),
        "policies": policies, "seeds": seeds,
    }  # fmt: skip

    def simulated() -> list[dict[str, Any]]:
        with alone():
            runs = paired(workload, cluster, ("static", *policies), seeds=seeds)
        return [
            {
                "case": name,
                "policy": policy,
                "jct": astuple(runs.times_better("jct_s", "static", by=policy)),
                "makespan": astuple(runs.times_better("makespan_s", "static", by=policy)),
                "rescalings": statistics.fmean(runs.numbers(policy, "rescalings")),
            }
            for policy in policies
        ]

    lines: list[dict[str, Any]] = kept(
        "elastic_gains", name.replace(" ", "-"), what, simulated, fresh=anew
    )
    return lines


def _over_workloads(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The recorded workloads taken together: the mean over them, each of them one sample."""
    recorded = [line for line in lines if line["case"].startswith(_RECORDED)]
    found = []
    for policy in dict.fromkeys(line["policy"] for line in recorded):
        its = [line for line in recorded if line["policy"] == policy]
        ratios = {
            key: astuple(ratio([line[key][0] for line in its], [1.0] * len(its)))
            for key in ("jct", "makespan")
        }
        rescalings = statistics.fmean(line["rescalings"] for line in its)
        name = f"all {len(its)} workloads"
        found.append({"case": name, "policy": policy, **ratios, "rescalings": rescalings})
    return found


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
