"""A network on which transports are checked: its nodes, what they publish, what is expected."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from garfield.core.silence import Reason
from garfield.testing.promises import expect
from garfield.transport.contract import (
    Answer,
    Key,
    NotYet,
    Payload,
    Ready,
    Replies,
    Transport,
    Until,
)

T = TypeVar("T")

NAMES = tuple(f"worker-{i}" for i in range(6))
"""The names of the nodes that the checks start."""

GRADIENT = Key("gradient", 7)
LENGTH = 10
SOON_S = 8.0  # less than the deadline of a pull, and much for a machine that is busy otherwise
MOMENT_S = 30.0  # for threads to end and counters to be written, on such a machine


class Network:
    """A network to start nodes on, whose transports have threads and a real clock."""

    def __init__(self, make: Callable[[str, Mapping[str, str]], Transport]) -> None:
        self._make = make
        self.addresses: dict[str, str] = {}

    def transport(self, name: str) -> Transport:
        """The transport of a new node, which does not serve yet."""
        return self._make(name, self.addresses)

    def join(self, transport: Transport) -> None:
        """Let the others know a node that serves."""
        self.addresses[transport.name] = transport.address

    def run(self, call: Callable[[], T]) -> T:
        """Run one node's part of a check."""
        return call()

    def run_together(self, calls: Sequence[Callable[[], object]]) -> None:
        """Run several parts side by side, to their ends."""
        threads = [threading.Thread(target=call) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def run_later(self, delay_s: float, call: Callable[[], object]) -> Callable[[], None]:
        """Run a part after so long; returns how to wait until it is done."""
        timer = threading.Timer(delay_s, call)
        timer.start()
        return timer.join

    def now_s(self) -> float:
        """The time by the transports' clock."""
        return time.monotonic()


NewNetwork = Callable[[], Network]


class PlainOutbox:
    """What a node publishes, in its simplest form."""

    def __init__(self, answers: Mapping[Key, Answer] | None = None) -> None:
        self.answers = dict(answers or {})
        self.asked: list[tuple[str, Key]] = []
        self._wakes: list[Callable[[], None]] = []

    def answer(self, asker: str, key: Key) -> Answer:
        self.asked.append((asker, key))
        return self.answers.get(key, NotYet())

    def watch(self, wake: Callable[[], None]) -> None:
        self._wakes.append(wake)

    def publish(self, key: Key, vector: Payload) -> None:
        self.answers[key] = Ready(vector)
        for wake in self._wakes:
            wake()


class Cluster:
    """Starts nodes on a network, and closes them."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._open: list[Transport] = []

    @property
    def started(self) -> tuple[Transport, ...]:
        """The transports that are open, in the order of their start."""
        return tuple(self._open)

    def start(self, name: str, outbox: PlainOutbox | None = None) -> Transport:
        transport = self.network.transport(name)
        self._open.append(transport)
        transport.serve(PlainOutbox() if outbox is None else outbox)
        self.network.join(transport)
        return transport

    def start_all(
        self, answers: Sequence[Answer | None], key: Key = GRADIENT
    ) -> tuple[list[Transport], list[PlainOutbox]]:
        """A node per answer to `key`; the first of them asks."""
        boxes = [PlainOutbox({} if answer is None else {key: answer}) for answer in answers]
        named = zip(NAMES, boxes, strict=False)
        return [self.start(name, box) for name, box in named], boxes

    def pull(self, transport: Transport, *what: Any, **how: Any) -> Replies:
        return self.network.run(lambda: pull(transport, *what, **how))

    def timed_pull(self, *what: Any, **how: Any) -> tuple[Replies, float]:
        """What a pull brought, and in how many seconds."""
        began = self.network.now_s()
        return self.pull(*what, **how), self.network.now_s() - began

    def close(self) -> None:
        for transport in self._open:
            transport.close()
        self._open.clear()


def pull(
    transport: Transport, peers: Sequence[str], until: Until, key: Key = GRADIENT,
    length: int = LENGTH, timeout_s: float = 10.0,
) -> Replies:  # fmt: skip
    return transport.pull(peers, key, length=length, until=until, timeout_s=timeout_s)


def vector(seed: int, length: int = LENGTH) -> Payload:
    return np.random.default_rng(seed).standard_normal(length).astype(np.float32)


def ready(seed: int, length: int = LENGTH) -> Ready:
    return Ready(vector(seed, length))


def expect_names(replies: Replies, *names: str) -> None:
    told = {name: str(why) for name, why in replies.silent.items()}
    expect(replies.names == names, f"Expected {names}, got {replies.names}; silent: {told}.")


def expect_row(row: Payload, expected: Payload) -> None:
    same = row.dtype == expected.dtype and np.array_equal(row, expected)
    expect(same, f"A row of {len(row)} × {row.dtype} is not what was published.")


def expect_silent(replies: Replies, *names: str) -> None:
    told = {name: str(why) for name, why in replies.silent.items()}
    expect(set(replies.silent) == set(names), f"Expected {names} to be silent, got {told}.")


def expect_reason(replies: Replies, name: str, reason: Reason) -> None:
    why = replies.silent[name]
    expect(why.reason is reason, f"{name} is said to be silent for {why.reason}, not {reason}.")


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether it comes true: other threads, and the system, take a moment."""
    deadline = time.monotonic() + MOMENT_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def expect_soon(wait_s: float) -> None:
    expect(wait_s < SOON_S, f"It took {wait_s:.1f} s.")
