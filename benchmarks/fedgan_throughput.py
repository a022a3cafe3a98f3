"""How throughput grows with devices: federated rounds against MD-GAN (Figures 6.13, 6.14, 6.16).

LSGAN on Fashion-MNIST, iid. Every point runs the real objects of both systems, with real tensors,
through the transport on a virtual clock (`fedgan_link.py`), for at least 20 iterations: the compute
charged is what was measured in that run, the bytes are those counted in it, and all devices share
the server's one link of 2 Gbps. Two numbers per second:

- *samples trained on*: B for each iteration of each device
- *declared epochs*: samples of the devices that took part, as they declare them, over all there
  are. A device that takes part counts whole, as in the thesis; in MD-GAN all take part always, so
  there it is the samples trained on that count

Each point is told twice: with devices and server as fast as one core here, and as fast as the
thesis's GPU is said to be (a Tesla P100, 9.3 TFLOP/s in float32 as its maker states, of which we
assume 30 %; the FLOPs of an iteration are counted, so that is an assumption, not a measurement).

Points are kept in results/fedgan_throughput and not measured again (`--fresh` does).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.fedgan_link import Throughput, federated_throughput, md_gan_throughput
from benchmarks.kept_runs import kept
from garfield.core.config import made
from garfield.data import load
from garfield.fedgan.baselines.md_gan import MdGanDevice, MdGanServer
from garfield.fedgan.baselines.md_gan_training import swap_period
from garfield.fedgan.device import DeviceData, Task, Trainer
from garfield.fedgan.gan import Gan
from garfield.fedgan.load import Load
from garfield.fedgan.networks import gan_for
from garfield.fedgan.partition import divided
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.simulation import simulated
from garfield.report.plain_tables import plain_table

QUESTION = "How do samples per second grow with devices, in federated rounds and in MD-GAN?"

LINK_BPS = 2e9
GPU = "Tesla P100, 9.3 TFLOP/s stated, 30 % of it assumed"
GPU_FLOPS = 0.3 * 9.3e12
LEAST_ITERATIONS = 20
FOLDER = "fedgan_throughput"


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--gan", default="lsgan", help="which networks")
    group.add_argument("--data", default="fashion", help="whose training images")
    group.add_argument("--data-dir", help="where they lie")
    group.add_argument(
        "--devices", type=int, nargs="+", default=[10, 20, 32, 60, 80, 120, 176],
        help="of Figures 6.13 and 6.16",
    )  # fmt: skip
    group.add_argument("--fraction", type=float, default=0.1, help="C there")
    group.add_argument("--local-steps", type=int, default=30, help="E there")
    group.add_argument("--batch", type=int, default=50, help="B")
    group.add_argument("--at", type=int, default=60, help="devices of Figure 6.14")
    group.add_argument("--steps", type=int, nargs="+", default=[10, 30, 60], help="E of it")
    group.add_argument(
        "--fractions", type=float, nargs="+", default=[1 / 30, 1 / 15, 2 / 15], help="C of it"
    )
    group.add_argument("--fresh", action="store_true", help="measure again what is kept")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Both figures, at both speeds."""
    torch.set_num_threads(1)  # a device is one core; others of the machine do not count
    if options.quick:
        _make_quick(options)
    world = _World(options)
    speeds = {"this machine": 1.0, "GPU": world.gpu_speed()}
    console.print(f"GPU: {GPU}, {speeds['GPU']:.0f} times a core here.")
    by_devices: list[dict[str, Any]] = []
    by_steps: list[dict[str, Any]] = []
    for name, speed in speeds.items():
        points = [
            world.compared(n, options.fraction, options.local_steps, speed) for n in options.devices
        ]
        console.print(_table(f"Figures 6.13 and 6.16, {name}", points))
        console.print(_shape(points))
        by_devices += _sides(points, name)
        points = [
            world.compared(options.at, fraction, steps, speed)
            for fraction in options.fractions
            for steps in options.steps
        ]
        console.print(_table(f"Figure 6.14: {options.at} devices, {name}", points))
        by_steps += _sides(points, name)
    return {
        "gpu": GPU, "gpu_speed": speeds["GPU"], "link_bps": LINK_BPS, "by_devices": by_devices,
        "by_steps": by_steps,
    }  # fmt: skip


def _make_quick(options: argparse.Namespace) -> None:
    options.gan, options.data = "lsgan(width=0.0625)", "fashion-small"
    options.devices, options.fraction, options.local_steps = [4, 8], 0.25, 5
    options.at, options.steps, options.fractions, options.batch = 4, [5], [0.5], 10


class _World:
    """The images and networks of all points."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        data = load(options.data, options.data_dir)
        self.classes = len(data.classes)
        self.gan: Gan = gan_for(options.gan, data.image)
        self.pixels = torch.tensor(data.pixels("train")).reshape(-1, *data.image)
        self.labels = torch.tensor(data.labels("train"))

    def shares(self, devices: int) -> list[DeviceData]:
        """The images of each device, all equally many of every class."""
        rows = divided(
            "iid", self.labels.numpy(), devices=devices, max_class=1, max_samples=1,
            rng=np.random.default_rng(0),
        )  # fmt: skip
        return [DeviceData(self.pixels, self.labels, each) for each in rows]

    def gpu_speed(self) -> float:
        """How many times as fast as a core here the GPU is said to be at an iteration of both
        networks: FLOPs are counted, seconds here measured."""
        data, trainer = self.shares(1)[0], Trainer(self.gan)
        state = simulated(
            self.gan, [data], classes=self.classes, settings=self._settings(1, 1.0, 1)
        ).server.state

        def iterations(count: int) -> None:
            trainer.train(data, state, Task(0, Load(self.options.batch, count), 1, 0, False))

        with FlopCounterMode(display=False) as counted:
            iterations(1)
        iterations(1)
        began = time.thread_time()
        iterations(5)
        here = counted.get_total_flops() * 5 / (time.thread_time() - began)
        return GPU_FLOPS / here

    def compared(self, devices: int, fraction: float, steps: int, speed: float) -> dict[str, Any]:
        """A point of both systems, kept."""
        o = self.options
        about = {
            "gan": o.gan, "data": o.data, "batch": o.batch, "devices": devices,
            "link_bps": LINK_BPS, "gpu": GPU if speed != 1.0 else "none",
        }  # fmt: skip
        apart = kept(
            FOLDER, f"md-gan-{devices}", {**about, "system": "md-gan"},
            lambda: asdict(self._md_gan(devices, speed)), fresh=o.fresh,
        )  # fmt: skip
        together = kept(
            FOLDER, f"federated-{devices}-{steps}",
            {**about, "system": "federated", "fraction": fraction, "steps": steps},
            lambda: asdict(self._federated(devices, fraction, steps, speed)), fresh=o.fresh,
        )  # fmt: skip
        n = len(self.labels)
        return {
            "devices": devices, "fraction": fraction, "steps": steps,
            "md_gan": _rates(Throughput(**apart), n),
            "federated": _rates(Throughput(**together), n),
        }  # fmt: skip

    def _md_gan(self, devices: int, speed: float) -> Throughput:
        shares, batch = self.shares(devices), self.options.batch
        image = tuple(self.pixels.shape[1:])
        server = MdGanServer(
            self.gan, (image[0], image[1], image[2]), devices, batch=batch,
            swap_every=swap_period([len(share) for share in shares], batch, 1.0),
        )  # fmt: skip
        made_devices = [
            MdGanDevice(
                self.gan, *share.batch(np.arange(len(share))), server.messages, number=number
            )
            for number, share in enumerate(shares)
        ]
        return md_gan_throughput(
            server, made_devices, iterations=LEAST_ITERATIONS, bandwidth_bps=LINK_BPS, speed=speed
        )

    def _federated(self, devices: int, fraction: float, steps: int, speed: float) -> Throughput:
        shares = self.shares(devices)
        federation = simulated(
            self.gan, shares, classes=self.classes,
            settings=self._settings(devices, fraction, steps),
        )  # fmt: skip
        rounds = max(2, -(-LEAST_ITERATIONS // steps))
        return federated_throughput(
            federation.server, Trainer(self.gan), shares, rounds=rounds,
            bandwidth_bps=LINK_BPS, speed=speed,
        )  # fmt: skip

    def _settings(self, devices: int, fraction: float, steps: int) -> FedganSettings:
        wanted = {
            "devices": devices, "fraction": fraction, "local_steps": steps,
            "batch": self.options.batch, "missing_classes": "allow",
        }  # fmt: skip
        return made(FedganSettings, wanted)


def _rates(found: Throughput, samples: int) -> dict[str, float]:
    return {
        "samples_per_s": found.trained / found.seconds,
        "epochs_per_s": found.declared / samples / found.seconds,
        "bytes_per_device_s": found.bytes_per_device_s,
        "down_bytes": found.down_bytes,
        "up_bytes": found.up_bytes,
        "seconds": found.seconds,
        "iterations": found.iterations,
        "compute_s": found.compute_s,
    }


def _table(title: str, points: list[dict[str, Any]]) -> Any:
    table = plain_table(
        "devices", "C", "E", "MD-GAN samples/s", "federated", "MD-GAN epochs/s", "federated",
        "MD-GAN kB/s a device", "federated", right=9,
    )  # fmt: skip
    table.title = title
    for point in points:
        one, other = point["md_gan"], point["federated"]
        table.add_row(
            str(point["devices"]), f"{point['fraction']:.3g}", str(point["steps"]),
            *(f"{side['samples_per_s']:.0f}" for side in (one, other)),
            *(f"{side['epochs_per_s']:.3g}" for side in (one, other)),
            *(f"{side['bytes_per_device_s'] / 1000:.0f}" for side in (one, other)),
        )  # fmt: skip
    return table


def _sides(points: list[dict[str, Any]], machines: str) -> list[dict[str, Any]]:
    """An entry for each system at each point: rates, over MD-GAN's, and how often one is asked."""
    found = []
    for point in points:
        fraction = Fraction(point["fraction"]).limit_denominator(1000)
        for key, system, c in (("md_gan", "MD-GAN", 1.0), ("federated", "FeGAN", float(fraction))):
            rates, beside = point[key], point["md_gan"]
            turns = rates["iterations"] / (1 if key == "md_gan" else point["steps"])
            found.append(
                {"machines": machines, "system": system, "devices": point["devices"],
                 "fraction": str(fraction), "label": f"C = {fraction}", "steps": point["steps"],
                 **rates,
                 "kb_per_device_s": rates["bytes_per_device_s"] / 1000,
                 "turns_in_200_s": c * turns * 200 / rates["seconds"],
                 "epochs_over_md_gan": rates["epochs_per_s"] / beside["epochs_per_s"],
                 "samples_over_md_gan": rates["samples_per_s"] / beside["samples_per_s"]}
            )  # fmt: skip
    return found


def _shape(points: list[dict[str, Any]]) -> str:
    """How much of a growth in devices becomes a growth in samples per second: 1 is linear."""
    first, last = points[0], points[-1]
    more = last["devices"] / first["devices"]
    if more == 1:
        return ""
    kept_up = {
        name: np.log(last[name]["samples_per_s"] / first[name]["samples_per_s"]) / np.log(more)
        for name in ("md_gan", "federated")
    }
    ahead = [
        point["devices"] for point in points
        if point["federated"]["samples_per_s"] > point["md_gan"]["samples_per_s"]
    ]  # fmt: skip
    return (
        f"From {first['devices']} to {last['devices']} devices samples/s grow by devices to the "
        f"power {kept_up['md_gan']:.2f} in MD-GAN and {kept_up['federated']:.2f} in federated "
        f"rounds, which are ahead at {', '.join(map(str, ahead)) or 'no number of'} devices."
    )
