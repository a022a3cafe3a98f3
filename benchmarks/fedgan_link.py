"""MD-GAN and federated rounds on a virtual clock: one link of the server's, shared by all devices.

Nodes run in one process on `transport.simulated`: their objects, tensors and vectors are real. Two
things move the clock, both as they come about in the run itself:

- *compute*: a piece of work is done, its seconds of this thread are measured, and the node sleeps
  for that long, times a factor for machines of another speed. Devices compute at the same time
- *the link*: every vector passes the server's link, whole and in the order in which it was ready;
  so many bits a second each way. What it carried must be what the transports counted
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch

from garfield.fedgan.averaging import State
from garfield.fedgan.baselines.md_gan import MdGanDevice, MdGanServer
from garfield.fedgan.baselines.md_gan_nodes import (
    DISCRIMINATOR,
    FEEDBACK,
    GENERATED,
    SWAPPED,
    MdGanDeviceNode,
    MdGanServerNode,
)
from garfield.fedgan.device import DeviceData, Task, Trainer, Update
from garfield.fedgan.server import FederatedServer, RoundPlan, RoundRecord
from garfield.nodes.outbox import Outbox
from garfield.transport.contract import Key, VectorKind, all_of, declare_kind
from garfield.transport.simulated import SimulatedTransport, Simulation

T = TypeVar("T")

SERVER = "server"
NETWORKS = declare_kind(VectorKind("networks"))
TRAINED = declare_kind(VectorKind("trained"))
_PATIENCE_S = 1e9  # of a clock that jumps


class SharedLink:
    """The server's link: what it carries each way, and until when it is busy."""

    def __init__(self, bandwidth_bps: float, lengths: Mapping[str, int]) -> None:
        """`lengths` are the numbers in a vector of each kind."""
        self._bps, self._lengths = bandwidth_bps, lengths
        self._free_s = {True: 0.0, False: 0.0}
        self.carried = {True: 0, False: 0}
        """Bytes, from the server and to it."""
        self.now_s: Callable[[], float] = lambda: 0.0

    def delay_s(self, asker: str, peer: str, key: Key) -> float:
        """How long the answer to an asker takes, behind all that is before it."""
        down, size = peer == SERVER, 4 * self._lengths[key.kind]
        now_s = self.now_s()
        done_s = max(now_s, self._free_s[down]) + 8 * size / self._bps
        self._free_s[down] = done_s
        self.carried[down] += size
        return done_s - now_s


@dataclass(frozen=True)
class Throughput:
    """What a run has shown."""

    seconds: float
    """Of the virtual clock."""
    trained: int
    """Samples that devices trained on."""
    declared: int
    """Samples of all devices that took part, as they declare them, once per part taken."""
    iterations: int
    """Of MD-GAN, or of a device in federated rounds."""
    down_bytes: int
    up_bytes: int
    devices: int
    compute_s: float
    """Measured here, of all nodes together."""

    @property
    def bytes_per_device_s(self) -> float:
        """Both ways, in the mean over devices and time."""
        return (self.down_bytes + self.up_bytes) / self.devices / self.seconds


class Clock:
    """A simulation that goes on for as long as computing takes."""

    def __init__(self, link: SharedLink, speed: float) -> None:
        self.simulation = Simulation(delay_s=link.delay_s)
        link.now_s = lambda: self.simulation.now_s
        self._speed = speed
        self.compute_s = 0.0

    def compute(self, work: Callable[[], T]) -> T:
        """Do some work, and let its asker be busy for as long as a machine of that speed is."""
        began = time.thread_time()
        made = work()
        took = time.thread_time() - began
        self.compute_s += took
        self.simulation.sleep(took / self._speed)
        return made


def md_gan_throughput(
    server: MdGanServer,
    devices: Sequence[MdGanDevice],
    *,
    iterations: int,
    bandwidth_bps: float,
    speed: float,
) -> Throughput:
    """Run MD-GAN over the link."""
    messages = server.messages
    lengths = {
        GENERATED.name: messages.one_batch, FEEDBACK.name: messages.feedback,
        DISCRIMINATOR.name: server.discriminator_length, SWAPPED.name: server.discriminator_length,
    }  # fmt: skip
    link = SharedLink(bandwidth_bps, lengths)
    clock = Clock(link, speed)
    names = [f"device-{device.number}" for device in devices]
    transport = clock.simulation.transport(SERVER)
    node = MdGanServerNode(server, transport, names, timeout_s=_PATIENCE_S, compute=clock.compute)
    clock.simulation.spawn(lambda: node.run(iterations))
    for name, device in zip(names, devices, strict=True):
        other = MdGanDeviceNode(
            device, clock.simulation.transport(name), SERVER, swap_every=server.swap_every,
            timeout_s=_PATIENCE_S, compute=clock.compute,
        )  # fmt: skip
        clock.simulation.spawn(lambda other=other: other.run(iterations))
    clock.simulation.run()
    trained = iterations * messages.batch * len(devices)
    return _found(link, transport, clock, len(devices), iterations, trained, trained)


def federated_throughput(
    server: FederatedServer,
    trainer: Trainer,
    devices: Sequence[DeviceData],
    *,
    rounds: int,
    bandwidth_bps: float,
    speed: float,
) -> Throughput:
    """Run federated rounds over the link: states go to the devices of a round, and come back."""
    length = len(packed(server.state))
    link = SharedLink(bandwidth_bps, {NETWORKS.name: length, TRAINED.name: length + 2})
    clock = Clock(link, speed)
    federation = _Federation(server, trainer, devices, clock, length)
    clock.simulation.spawn(lambda: federation.run(rounds))
    clock.simulation.run()
    return _found(
        link, federation.transport, clock, len(devices), federation.iterations,
        federation.trained, federation.declared,
    )  # fmt: skip


class _Federation:
    """A server and its devices, each behind a transport."""

    def __init__(
        self,
        server: FederatedServer,
        trainer: Trainer,
        devices: Sequence[DeviceData],
        clock: Clock,
        length: int,
    ) -> None:
        self.server, self.trainer, self.devices, self.clock = server, trainer, devices, clock
        self.length = length
        self.transport, self.outbox = self._joined(SERVER)
        self.nodes = [self._joined(f"device-{number}") for number in range(len(devices))]
        self.iterations = self.trained = self.declared = 0

    def _joined(self, name: str) -> tuple[SimulatedTransport, Outbox]:
        transport, outbox = self.clock.simulation.transport(name), Outbox()
        transport.serve(outbox)
        return transport, outbox

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            plan = self.clock.compute(self.server.plan)
            at = plan.round
            self.outbox.publish(Key(NETWORKS.name, at), packed(self.server.state), copy=False)
            for device, task in zip(plan.devices, plan.tasks, strict=True):
                self.clock.simulation.spawn(lambda d=device, t=task: self._train(d, t))
            names = [f"device-{device}" for device in plan.devices]
            replies = self.transport.pull(
                names, Key(TRAINED.name, at), length=self.length + 2, until=all_of(names),
                timeout_s=_PATIENCE_S,
            )  # fmt: skip
            rows = dict(zip(replies.names, replies.rows, strict=True))
            sent = [rows[name] for name in names]
            record = self.clock.compute(partial(self._finish, plan, sent))
            self.iterations += max(task.load.steps for task in plan.tasks)
            self.trained += record.samples
            self.declared += sum(len(self.devices[device]) for device in record.took_part)

    def _finish(self, plan: RoundPlan, sent: list[np.ndarray]) -> RoundRecord:
        return self.server.finish(plan, [self._update(row) for row in sent])

    def _train(self, device: int, task: Task) -> None:
        transport, outbox = self.nodes[device]
        [row] = transport.pull(
            [SERVER], Key(NETWORKS.name, task.round), length=self.length, until=all_of([SERVER]),
            timeout_s=_PATIENCE_S,
        ).rows  # fmt: skip

        def work() -> np.ndarray:
            state = unpacked(np.asarray(row), self.server.state)
            update = self.trainer.train(self.devices[device], state, task)
            losses = [update.generator_loss, update.discriminator_loss]
            return np.concatenate([packed(update.state), np.array(losses, np.float32)])

        outbox.publish(Key(TRAINED.name, task.round), self.clock.compute(work), copy=False)

    def _update(self, row: np.ndarray) -> Update:
        state = unpacked(np.asarray(row[:-2]), self.server.state)
        return Update(state, float(row[-2]), float(row[-1]))


def packed(state: State) -> np.ndarray:
    """A learning state as one vector of float32; its few whole numbers are small."""
    return torch.cat([tensor.flatten().float() for tensor in state.values()]).numpy()


def unpacked(vector: np.ndarray, like: State) -> State:
    """The learning state that was packed."""
    parts = torch.tensor(vector).split([tensor.numel() for tensor in like.values()])
    return {
        name: part.view(tensor.shape).to(tensor.dtype)
        for part, (name, tensor) in zip(parts, like.items(), strict=True)
    }


def _found(
    link: SharedLink,
    server: SimulatedTransport,
    clock: Clock,
    devices: int,
    iterations: int,
    trained: int,
    declared: int,
) -> Throughput:
    """What the run has shown, once the link carried what was counted at its ends."""
    down, up = link.carried[True], link.carried[False]
    assert (down, up) == (server.bytes_sent, server.bytes_received), (down, up)
    return Throughput(
        clock.simulation.now_s, trained, declared, iterations, down, up, devices, clock.compute_s
    )
