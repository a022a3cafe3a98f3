"""Torch's collectives as a transport: for the synchronous baseline, where everybody is trusted.

One server and its workers form a group. A round is a broadcast of ("model", t)
from the server, and a gather of ("gradient", t) to it: what the server has
published goes out when it asks for the gradients of the same step, and a
worker's gradient when it is published. Every vector carries its step behind it.

Nothing here survives a fault. A peer that is late holds up the whole gather, and
one that dies ends it, whoever it was; so workers note in the group's store what
they have sent, and who has not is named. (A time-out of gloo's own would close the
connections of all, so it is set beyond any wait of ours.) Nodes on this machine
only: the store and gloo listen on loopback.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import numpy as np

from garfield.core.errors import ConfigError, MissingDependency, RunError
from garfield.core.silence import Reason, Silence, no_answer
from garfield.transport.collective_rows import STEP, SteppedRows
from garfield.transport.collector import ReplyCollector
from garfield.transport.contract import (
    Answerer,
    Key,
    Payload,
    Ready,
    Replies,
    Until,
    all_of,
)
from garfield.transport.identity import PeerAddress
from garfield.transport.process_groups import init_process_group

Backend = Literal["gloo", "nccl"]
WAITS = Silence(Reason.WAITS_FOR_OTHERS, "waits with us for the others")
LOST = Silence(Reason.DISCONNECTED, "connection lost")

_SLICE_S = 0.2  # how long a signal may have to wait


def check(backend: str, members: int) -> None:
    """Refuse what this machine cannot do."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        raise MissingDependency(
            f"{backend} comes with torch. Install it with: pip install 'garfield-ml[torch]'"
        ) from None
    gpus = torch.cuda.device_count()
    if backend == "nccl" and (not dist.is_nccl_available() or gpus < members):
        raise ConfigError(
            f"nccl needs a GPU for each of the {members} nodes, and here are {gpus}. "
            "Use --transport gloo."
        )


class _Broken(Exception):  # noqa: N818 (a signal between the parts of this file)
    """The group has lost a member, and with it all use."""


class CollectiveTransport:
    """One member's part in the group: one transport a process, as torch has one group.

    `members` are the server and then its workers; where the server's store listens is looked up
    in `peers` when the group is formed. `give_up_s` is the longest that a node waits.
    """

    def __init__(
        self,
        name: str,
        members: Sequence[str],
        peers: Mapping[str, PeerAddress],
        *,
        backend: Backend = "gloo",
        give_up_s: float = 60.0,
    ) -> None:
        self.name, self.members = name, tuple(members)
        self.rank = self.members.index(name)
        self.address = f"{backend}:{name}"
        self.bytes_sent = self.bytes_received = 0
        self._peers, self._backend = peers, backend
        self._give_up_s = give_up_s
        self._timeout = timedelta(seconds=2 * give_up_s + 60)
        self._device = f"cuda:{self.rank}" if backend == "nccl" else "cpu"
        self._answerer: Answerer | None = None
        self._store: Any = None
        self._joined = False
        self._broken = False
        self._begun: tuple[Key, Any] | None = None  # of the collective that is under way
        self._last: tuple[Key, Replies] | None = None
        self._owed: Key | None = None  # what a worker has to send next
        self._sending: Any = None
        self._out: SteppedRows | None = None
        self._in: SteppedRows | None = None

    def shared_copy(self, vector: Payload) -> Payload | None:
        return None

    def serve(self, answerer: Answerer) -> None:
        """Be ready for the others. Once."""
        if self._answerer is not None:
            raise RunError(f"{self.name} is serving already. One transport has one outbox.")
        self._answerer = answerer
        answerer.watch(self._published)
        if self.rank == 0:
            self._store, self.address = _listening_store(self._timeout)

    def pull(
        self, peers: Sequence[str], key: Key, *, length: int, until: Until, timeout_s: float,
        stall_s: float | None = None,
    ) -> Replies:  # fmt: skip
        """The server asks all workers for gradients, a worker the server for its model."""
        kind, whom = ("model", self.members[:1]) if self.rank else ("gradient", self.members[1:])
        if key.kind != kind or tuple(sorted(peers)) != tuple(sorted(whom)):
            raise RunError(
                f"With {self._backend}, {self.name} can ask {', '.join(whom)} for {kind}s, and "
                f"nobody for {key.kind}s of its choice. Use gRPC for other applications."
            )
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        deadline = time.monotonic() + timeout_s
        try:
            missing = self._join(deadline)
            if missing:
                late = Silence(Reason.UNREACHABLE, f"has not joined in {timeout_s:g} s")
                return _nobody(whom, missing, late)
            if not self._done(key, length, deadline):
                return _nobody(whom, self._unsent(key), no_answer(timeout_s))
        except _Broken:
            return _nobody(whom, self._lost(key, deadline), LOST)
        replies = self._read(whom, key)
        self._last, self._begun = (key, replies), None
        if self.rank:
            self._owed = Key("gradient", key.step)
        return replies

    def close(self) -> None:
        """Leave the group, unless something is still under way, which torch would wait for."""
        if self._joined and self._begun is None and not self._broken:
            import torch.distributed as dist

            dist.destroy_process_group()
            self._joined = False

    # -- the group ----------------------------------------------------------------------

    def _join(self, deadline: float) -> Sequence[str]:
        """Form the group; who is still missing at the deadline."""
        if self._joined:
            return ()

        left = timedelta(seconds=max(0.1, deadline - time.monotonic()))
        try:
            if self._store is None:
                host, _, port = self._peers[self.members[0]].address.rpartition(":")
                self._store = _store(host, int(port), is_master=False, timeout=left)
            self._store.set(f"here/{self.name}", "yes")
            while missing := [m for m in self.members if not self._store.check([f"here/{m}"])]:
                if time.monotonic() >= deadline:
                    return missing
                time.sleep(0.02)
        except RuntimeError:
            return self.members[:1]  # it keeps the store
        _speak_by_loopback()
        init_process_group(
            self._backend, store=self._store, rank=self.rank, world_size=len(self.members),
            timeout=self._timeout,
        )  # fmt: skip
        self._joined = True
        return ()

    def _done(self, key: Key, length: int, deadline: float) -> bool:
        if self._broken:
            raise _Broken
        if self._begun is None or self._begun[0] != key:
            self._begun = (key, self._begin(key, length))
        return self._completed(self._begun[1], deadline)

    def _begin(self, key: Key, length: int) -> Any:
        import torch.distributed as dist

        if self._in is None or self._in.host.shape[1] != length + STEP:
            rows = 1 if self.rank else len(self.members)
            self._in = SteppedRows.make(rows, length, self._device)
            self._out = SteppedRows.make(1, length, self._device)
        assert self._out is not None
        if self.rank:
            return dist.broadcast(self._in.tensor[0], src=0, async_op=True)
        assert self._answerer is not None
        answer = self._answerer.answer(self.members[1], Key("model", key.step))
        assert isinstance(answer, Ready)  # a server publishes its model before it asks
        self._out.put(answer.payload, key.step)
        self.bytes_sent += 4 * length * (len(self.members) - 1)
        self._sending = dist.broadcast(self._out.tensor[0], src=0, async_op=True)
        return dist.gather(self._out.tensor[0], list(self._in.tensor), dst=0, async_op=True)

    def _published(self) -> None:
        """A worker's gradient goes out as soon as it is there."""
        if self._owed is None:
            return
        assert self._answerer is not None
        assert self._out is not None
        answer = self._answerer.answer(self.members[0], self._owed)
        if not isinstance(answer, Ready):
            return
        import torch.distributed as dist

        step = self._owed.step
        self._out.put(answer.payload, step)
        try:
            self._sending = dist.gather(self._out.tensor[0], None, dst=0, async_op=True)
            # only then: who dies before all of it has left must not be said to have sent it
            if self._completed(self._sending, time.monotonic() + self._give_up_s):
                self._store.set(f"sent/{self.name}", str(step))
        except (RuntimeError, _Broken):
            self._broken = True
        self.bytes_sent += 4 * len(answer.payload)
        self._owed = None

    def _completed(self, work: Any, deadline: float) -> bool:
        """Whether a collective has ended. Waiting in vain leaves it as it was."""
        while not work.is_completed():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            if self._backend == "nccl":  # whose wait cannot be tried again
                time.sleep(min(1e-3, left_s))
                continue
            try:
                work.wait(timedelta(seconds=max(1e-3, min(_SLICE_S, left_s))))
            except RuntimeError:
                continue  # time was up, or it has failed, and then it is completed
        try:
            work.wait()
        except RuntimeError as problem:
            self._broken = True
            raise _Broken(str(problem)) from None
        return True

    # -- what came, and what did not ----------------------------------------------------

    def _read(self, whom: Sequence[str], key: Key) -> Replies:
        assert self._in is not None
        found = self._in.get()
        found = found if self.rank else found[1:]  # the server's own is the first of its rows
        collector = ReplyCollector(whom, key, found.shape[1] - STEP, all_of(whom))
        for name, row in zip(whom, found, strict=True):
            step, vector = int(row[-STEP:].view(np.int64)[0]), row[:-STEP]
            if step == key.step:
                collector.take(name, vector)
            else:
                detail = f"sent step {step} instead of {key.step}"
                collector.fail(name, Silence(Reason.WRONG_STEP, detail))
            self.bytes_received += vector.nbytes
        return collector.replies(0.0)  # nobody is late: a collective brings all or none

    def _unsent(self, key: Key) -> Sequence[str]:
        """Who has not sent its part of a gather; for a worker, the server is all it knows of."""
        if self.rank:
            return self.members[:1]
        return [name for name in self.members[1:] if self._sent(name) < key.step]

    def _sent(self, name: str) -> int:
        noted = f"sent/{name}"
        return int(self._store.get(noted)) if self._store.check([noted]) else -1

    def _lost(self, key: Key, deadline: float) -> Sequence[str]:
        """Whose loss broke the group: all but one will have sent their part, given time."""
        while len(missing := self._unsent(key)) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        return missing


def _nobody(asked: Sequence[str], guilty: Sequence[str], silence: Silence) -> Replies:
    """No rows: a collective brings all or none. Without a culprit, it is anybody's fault."""
    blamed = [name for name in asked if name in guilty] or asked
    return Replies((), (), {name: silence if name in blamed else WAITS for name in asked})


def _listening_store(timeout: timedelta) -> tuple[Any, str]:
    """The group's store at a free port of the loopback: torch by itself would listen anywhere."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        store = _store(
            "127.0.0.1", port, is_master=True, wait_for_workers=False, timeout=timeout,
            master_listen_fd=listening.detach(),
        )  # fmt: skip
    return store, f"127.0.0.1:{port}"


def _store(host: str, port: int, **options: Any) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore(host, port, **options)


def _speak_by_loopback() -> None:
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ[variable] = loopback
