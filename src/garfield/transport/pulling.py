"""One pull: all peers are asked at once; what comes is kept until it is enough.

Knows nothing of gRPC: it is handed the function that asks one peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TypeAlias

from garfield.core.silence import NOT_NEEDED, Reason, Silence, gone, no_answer
from garfield.transport.contract import Payload, Until
from garfield.transport.grpc.wire import Request, WireError


@dataclass
class Attempt:
    """Asking one peer until the loop's clock shows `deadline`, and how far that has come."""

    peer: str
    request: Request
    deadline: float
    stall_s: float
    """How long a peer that has begun to send may take over one chunk."""
    failure: Silence | None = None
    """Why it failed last time."""
    filling: object | None = None
    """What is arriving."""
    by_stream: bool = False
    """Same host or not, descriptors do not get here."""

    def left_s(self) -> float:
        return max(0.0, self.deadline - asyncio.get_running_loop().time())

    def so_far(self, timeout_s: float) -> Silence:
        """What to say of the peer if time is up."""
        if self.filling is not None:
            return Silence(Reason.TOO_SLOW, f"{self.filling} in {timeout_s:.3g} s")
        return self.failure or no_answer(timeout_s)


Ask: TypeAlias = Callable[[Attempt], Awaitable[Payload | int]]
"""The peer's vector, or the step that it claims to be at; WireError if it failed for good."""


class _Enough(Exception):  # noqa: N818 (a signal, not an error)
    """The peer that just answered was the last one needed."""


@dataclass
class Pull:
    """Who has answered what."""

    request: Request
    until: Until
    timeout_s: float
    rows: dict[str, Payload] = field(default_factory=dict)
    silent: dict[str, Silence] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    unneeded: dict[str, Payload] = field(default_factory=dict)
    """Rows that came when it was enough already."""
    enough: bool = False

    async def run(self, peers: Collection[str], ask: Ask) -> None:
        """Until enough have answered, or everybody has, or time is up; then cancel the rest."""
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        attempts = [Attempt(peer, self.request, deadline, self.timeout_s / 2) for peer in peers]
        self.enough = self.until(self.rows)
        if attempts and not self.enough:
            await self._ask_all(attempts, ask)
        for attempt in attempts:
            if attempt.peer not in self.rows:
                unneeded = attempt.failure or NOT_NEEDED
                late = unneeded if self.enough else attempt.so_far(self.timeout_s)
                self.silent.setdefault(attempt.peer, late)

    async def _ask_all(self, attempts: list[Attempt], ask: Ask) -> None:
        tasks = [asyncio.ensure_future(self._ask(attempt, ask)) for attempt in attempts]
        try:
            until_raised = asyncio.FIRST_EXCEPTION
            await asyncio.wait(tasks, timeout=self.timeout_s, return_when=until_raised)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, _Enough):
                raise end

    async def _ask(self, attempt: Attempt, ask: Ask) -> None:
        try:
            came = await ask(attempt)
        except WireError as problem:
            self.silent[attempt.peer] = problem.silence
            return
        if isinstance(came, int):
            self.gone[attempt.peer] = came
            self.silent[attempt.peer] = gone(came)
        elif self.enough:
            self.unneeded[attempt.peer] = came
        else:
            self.rows[attempt.peer] = came
            self.enough = self.until(self.rows)
            if self.enough:
                raise _Enough
