"""MD-GAN over the library's transport: who publishes what, and who pulls it.

    ("generated", t, j)       the server's batch j of iteration t; a device pulls its two of k
    ("feedback", t)           a device's feedback; the server pulls all of them
    ("discriminator", t)      a device's, when discriminators change places; the server pulls them
    ("swapped", t, device)    what the server relays to that device

Both sides know beforehand how many iterations there are and when discriminators change places.
Every iteration needs every device: one that stays silent ends the run, and is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from garfield.core.errors import QuorumError
from garfield.fedgan.baselines.md_gan import MdGanDevice, MdGanServer
from garfield.nodes.outbox import Outbox
from garfield.transport.contract import (
    Key,
    Payload,
    Transport,
    VectorKind,
    all_of,
    declare_kind,
)

T = TypeVar("T")

GENERATED = declare_kind(VectorKind("generated"))
FEEDBACK = declare_kind(VectorKind("feedback"))
DISCRIMINATOR = declare_kind(VectorKind("discriminator"))
SWAPPED = declare_kind(VectorKind("swapped"))


class Compute(Protocol):
    """Does a piece of work: a simulation lets its clock go on for as long as that took."""

    def __call__(self, work: Callable[[], T], /) -> T: ...


def at_once(work: Callable[[], T], /) -> T:
    """Do the work, and take the time that it takes."""
    return work()


class MdGanServerNode:
    """The server behind a transport."""

    def __init__(
        self,
        server: MdGanServer,
        transport: Transport,
        devices: Sequence[str],
        *,
        timeout_s: float = 60.0,
        compute: Compute = at_once,
    ) -> None:
        """`devices` are names, in the order of their numbers."""
        self.server, self.transport, self.devices = server, transport, list(devices)
        self._timeout_s, self._compute = timeout_s, compute
        self._outbox = Outbox()
        transport.serve(self._outbox)

    def run(self, iterations: int) -> None:
        """Train up to so many iterations in all."""
        while self.server.iteration < iterations:
            t = self.server.iteration
            for number, batch in enumerate(self._compute(self._drawn)):
                self._outbox.publish(Key(GENERATED.name, t, number), batch, copy=False)
            feedback = self._pull(Key(FEEDBACK.name, t), self.server.messages.feedback)
            self._compute(partial(self._learn, feedback))
            self._swap(t)

    def _drawn(self) -> list[Payload]:
        self.server.draw()
        return [self.server.batch(number) for number in range(self.server.messages.k)]

    def _learn(self, feedback: list[Payload]) -> None:
        for device, row in enumerate(feedback):
            self.server.take_feedback(device, row)
        self.server.update()

    def _swap(self, t: int) -> None:
        swaps = self.server.swaps()
        if not swaps:
            return
        length = self.server.discriminator_length
        given = self._pull(Key(DISCRIMINATOR.name, t), length)
        for device, giver in swaps.items():
            self._outbox.publish(Key(SWAPPED.name, t, device), given[giver])

    def _pull(self, key: Key, length: int) -> list[Payload]:
        """What each device has under a key, in their order."""
        return _pulled(self.transport, self.devices, key, length, self._timeout_s)


class MdGanDeviceNode:
    """A device behind a transport."""

    def __init__(
        self,
        device: MdGanDevice,
        transport: Transport,
        server: str,
        *,
        swap_every: int,
        timeout_s: float = 60.0,
        compute: Compute = at_once,
    ) -> None:
        """`server` is its name; `swap_every` is the server's, 0 for a device that is alone."""
        self.device, self.transport, self._server = device, transport, server
        self._swap_every, self._timeout_s, self._compute = swap_every, timeout_s, compute
        self._outbox = Outbox()
        transport.serve(self._outbox)

    def run(self, iterations: int) -> None:
        """Answer up to so many iterations in all."""
        messages = self.device.messages
        while self.device.iteration < iterations:
            t = self.device.iteration
            batches = [
                self._pull(Key(GENERATED.name, t, number), messages.one_batch)
                for number in messages.chosen(self.device.number)
            ]
            feedback = self._compute(partial(self._feedback, batches))
            self._outbox.publish(Key(FEEDBACK.name, t), feedback, copy=False)
            if self._swap_every and (t + 1) % self._swap_every == 0:
                self._swap(t)

    def _feedback(self, batches: list[Payload]) -> Payload:
        return self.device.feedback(np.concatenate(batches))

    def _swap(self, t: int) -> None:
        own = self.device.give_discriminator()
        self._outbox.publish(Key(DISCRIMINATOR.name, t), own, copy=False)
        key = Key(SWAPPED.name, t, self.device.number)
        self.device.take_discriminator(np.array(self._pull(key, len(own))))

    def _pull(self, key: Key, length: int) -> Payload:
        [row] = _pulled(self.transport, [self._server], key, length, self._timeout_s)
        return row


def _pulled(
    transport: Transport, peers: list[str], key: Key, length: int, timeout_s: float
) -> list[Payload]:
    """What these have under a key, in their order; QuorumError unless all of them answer."""
    replies = transport.pull(peers, key, length=length, until=all_of(peers), timeout_s=timeout_s)
    rows = dict(zip(replies.names, replies.rows, strict=True))
    silent = {peer: replies.silent[peer] for peer in peers if peer not in rows}
    if silent:
        told = ", ".join(f"{peer} ({why})" for peer, why in silent.items())
        raise QuorumError(
            f"{transport.name} got {len(rows)} of {len(peers)} {key.kind} vectors for iteration "
            f"{key.step} in {timeout_s:g} s. Silent: {told}.",
            silent,
        )
    return [rows[peer] for peer in peers]
