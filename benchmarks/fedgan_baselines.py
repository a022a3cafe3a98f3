"""Does MD-GAN learn what centralized training learns? Images of iid MNIST, 10 devices.

Both train the same networks for the same number of the generator's steps, from one seed; every so
many iterations 10,000 images are judged. The claim to meet: MD-GAN's FID (small CNN) is at most
1.5 times that of centralized training at the end. Noise and single classes of real images stand
beside them, as FID knows no scale of its own.

A training is saved at each of its evaluations, in results/fedgan_baselines, and goes on there; what
evaluations found is kept in benchmarks/raw/fedgan_baselines, and one that is whole is not repeated.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

from benchmarks.fedgan_runs import mean, spread
from benchmarks.kept_runs import RESULTS
from garfield.core.files import replacing, write_json
from garfield.data import load
from garfield.data.partitions import parse
from garfield.fedgan.baselines import CentralizedTraining, MdGanTraining
from garfield.fedgan.judging import Judge, as_metrics, drawn_images, judge_for
from garfield.fedgan.judging.small_cnn import in_range
from garfield.fedgan.networks import gan_for
from garfield.report.machine import processor
from garfield.report.plain_tables import plain_table

QUESTION = "How near does MD-GAN come to centralized training, on iid images?"
TARGET = 1.5
FOLDER = RESULTS / "fedgan_baselines"
RAW = Path(__file__).parent / "raw" / "fedgan_baselines"
_JUDGED, _JUDGED_QUICKLY = 10_000, 300


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--gan", default="lsgan(width=0.25)", help="which networks")
    group.add_argument("--data", default="mnist", help="mnist or fashion")
    group.add_argument("--data-dir", help="where they lie")
    group.add_argument("--devices", type=int, default=10, help="of MD-GAN")
    group.add_argument("--iterations", type=int, default=4000, help="of the generator")
    group.add_argument("--every", type=int, default=500, help="iterations between evaluations")
    group.add_argument("--batch", type=int, default=50, help="images of an iteration and device")
    group.add_argument("--seeds", type=int, default=1, help="how many")
    group.add_argument("--threads", type=int, default=2, help="of torch")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """FID over iterations of both, and their ratio at the end."""
    torch.set_num_threads(options.threads)
    if options.quick:
        options.gan, options.data = "lsgan(width=0.0625)", "fashion-small"
        options.devices, options.iterations, options.every, options.batch = 3, 4, 2, 10
    data = load(options.data, options.data_dir)
    judge = judge_for(options.data, data_dir=options.data_dir)
    gan = gan_for(options.gan, data.image)
    images = in_range(torch.tensor(data.pixels("train")).reshape(-1, *data.image))
    labels = torch.tensor(data.labels("train"))
    found: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        rng = np.random.default_rng(seed)
        shares = parse("iid")(data.labels("train"), workers=options.devices, rng=rng)
        trainings: dict[str, Callable[[], CentralizedTraining | MdGanTraining]] = {
            "centralized": lambda seed=seed: CentralizedTraining(
                gan, images, labels, batch=options.batch, seed=seed
            ),
            "md-gan": lambda seed=seed, shares=shares: MdGanTraining(
                gan, [(images[share], labels[share]) for share in shares],
                batch=options.batch, seed=seed,
            ),
        }  # fmt: skip
        for name, make in trainings.items():
            history = _trained(name, make(), judge, options, seed, console)
            found.append({"training": name, "seed": seed, "evaluations": history})
    return _told(found, scale(judge, quick=options.quick), options, console)


def _trained(
    name: str,
    training: CentralizedTraining | MdGanTraining,
    judge: Judge,
    options: argparse.Namespace,
    seed: int,
    console: Console,
) -> list[dict[str, Any]]:
    """What evaluations have found, beginning from where the last run of this was broken off."""
    what = {
        key: getattr(options, key) for key in ("gan", "data", "devices", "every", "batch")
    } | {"seed": seed, "training": name}  # fmt: skip
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
    saved = FOLDER / f"{name}-{digest}.safetensors"
    told = (FOLDER if options.quick else RAW) / f"{name}-{digest}.json"
    history: list[dict[str, Any]] = (
        json.loads(told.read_text())["evaluations"] if told.exists() else []
    )
    if history and history[-1]["iteration"] >= options.iterations:
        return [each for each in history if each["iteration"] <= options.iterations]
    if saved.exists():
        training.restore(load_file(saved))
    history = [each for each in history if each["iteration"] <= training.iteration]
    for folder in (saved.parent, told.parent):
        folder.mkdir(parents=True, exist_ok=True)
    while training.iteration < options.iterations:
        training.train(min(options.iterations, training.iteration + options.every))
        history.append({"iteration": training.iteration, **_judged(training, judge, options, seed)})
        write_json(
            told, {**what, "cpu": processor(), "evaluations": history}
        )  # first: what is told twice is dropped
        _save(saved, training)
        fid, modes = history[-1]["fid"], history[-1]["modes"]
        console.print(f"{name}, seed {seed}, {training.iteration}: {fid:.1f}, {modes} modes")
    return [each for each in history if each["iteration"] <= options.iterations]


def _judged(
    training: CentralizedTraining | MdGanTraining,
    judge: Judge,
    options: argparse.Namespace,
    seed: int,
) -> dict[str, Any]:
    if isinstance(training, MdGanTraining):
        gan, generator = training.server.gan, training.server.generator
    else:
        gan, generator = training.gan, training.generator
    n = _JUDGED_QUICKLY if options.quick else _JUDGED
    images = drawn_images(gan, generator, n, seed)
    found = as_metrics(judge.score(images, few_are_enough=options.quick))
    if isinstance(training, MdGanTraining):
        found["down_bytes"] = sum(each.down for each in training.traffic)
        found["up_bytes"] = sum(each.up for each in training.traffic)
    return found


def _save(path: Path, training: CentralizedTraining | MdGanTraining) -> None:
    with replacing(path) as partial:
        save_file(training.state(), partial)


def scale(judge: Judge, *, quick: bool) -> dict[str, float]:
    """What noise and single classes are worth."""
    rng = torch.Generator().manual_seed(0)
    n = _JUDGED_QUICKLY if quick else _JUDGED
    noise = torch.rand(n, *judge.image, generator=rng) * 2 - 1
    alone = [
        judge.score(in_range(judge.real.pixels[judge.real.labels == c]), few_are_enough=True).fid
        for c in range(judge.real.classes)
    ]
    return {"noise": judge.score(noise, few_are_enough=True).fid, "one_class": min(alone)}


def _told(
    found: list[dict[str, Any]],
    scale: dict[str, float],
    options: argparse.Namespace,
    console: Console,
) -> dict[str, Any]:
    table = plain_table("training", "seed", "iterations", "FID", "modes", "KL", right=5)
    for each in found:
        last = each["evaluations"][-1]
        table.add_row(
            each["training"], str(each["seed"]), str(last["iteration"]), f"{last['fid']:.1f}",
            f"{last['modes']} of {last['classes']}", f"{last['class_kl']:.3f}",
        )  # fmt: skip
    console.print(table)
    ends = {
        name: float(np.mean([e["evaluations"][-1]["fid"] for e in found if e["training"] == name]))
        for name in ("centralized", "md-gan")
    }
    ratio = ends["md-gan"] / ends["centralized"]
    label = found[0]["evaluations"][-1]["fid_label"]
    console.print(
        f"{label}: noise {scale['noise']:.0f}, nearest single class {scale['one_class']:.0f}. "
        f"MD-GAN with {options.devices} devices ends at {ratio:.2f} times centralized: target "
        f"{TARGET} {'met' if ratio <= TARGET else 'missed'}."
    )
    return {
        "label": label, "scale": scale, "ratio": ratio, "target": TARGET, "runs": found,
        "curve": _curve(found, options),
    }  # fmt: skip


def _curve(found: list[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The mean over seeds at each evaluation, with the keys of `fedgan_runs.curve`."""
    curve = []
    for training, label in (("centralized", "centralized"), ("md-gan", "MD-GAN")):
        together = options.devices if training == "md-gan" else 1
        histories = [each["evaluations"] for each in found if each["training"] == training]
        for of_seeds in zip(*histories, strict=True):
            at, fids = of_seeds[0]["iteration"], [each["fid"] for each in of_seeds]
            curve.append(
                {"training": training, "label": label, "iterations": at,
                 "images": at * options.batch * together, "fid": mean(fids),
                 "fid_deviation": spread(fids)}
            )  # fmt: skip
    return curve
