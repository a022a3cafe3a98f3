"""The process group of one generation: formed between two steps, and gone with it.

Every generation has a store of its own, opened by its first member at a port that the system
chooses. So whoever hosted the last one may leave, and no key of an old group is ever read by a
new one. A group of one needs neither store nor collectives.

Whatever a collective fails of (a peer that is gone, or silent for too long) is `GroupBroken`.
Gloo then goes on in the same process. NCCL is provided for and has not been run: after a failure
its communicators cannot be trusted, so there the process ends, to be started anew.
"""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch._dynamo  # 1.4 s that nobody shall wait for when members meet: see process_groups
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]  # torch hides them
from torch.nn.parallel import DistributedDataParallel

from garfield.elastic.job.coordination import Generation
from garfield.transport.process_groups import init_process_group

GLOO, NCCL = "gloo", "cpu:gloo,cuda:nccl"
"""What carries tensors, by where they are: control words are always in memory."""
_CONNECT_S = 5.0
_LOOPBACK = "127.0.0.1"


class GroupBroken(Exception):  # noqa: N818
    """A member is gone or silent: this group will not take another step. No user meets it."""


class MeetingPlace:
    """The store of one generation, as its members see it. Whatever fails in it is GroupBroken."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def come(self, rank: int) -> None:
        """Say that a member is here."""
        with failures():
            self.store.set(f"here-{rank}", "")

    def missing(self, ranks: Iterable[int]) -> list[int]:
        """Those of them who are not here yet."""
        with failures():
            return [rank for rank in ranks if not self.store.check([f"here-{rank}"])]


class OfferedStore(MeetingPlace):
    """One that was opened here, at a port that the system has chosen."""

    def __init__(self, host: str) -> None:
        with socket.create_server((host, 0)) as listening:
            port = listening.getsockname()[1]
            # the store's own socket would listen on every interface
            store = TCPStore(
                host, port, is_master=True, wait_for_workers=False,
                timeout=timedelta(seconds=_CONNECT_S), master_listen_fd=listening.detach(),
            )  # fmt: skip
        super().__init__(store)
        self.address = f"{host}:{port}"


def connect(address: str) -> MeetingPlace:
    """Go to where another member has opened it; GroupBroken if that one is gone."""
    host, _, port = address.rpartition(":")
    timeout = timedelta(seconds=_CONNECT_S)
    with failures():
        return MeetingPlace(TCPStore(host, int(port), is_master=False, timeout=timeout))


class Pending:
    """Numbers that are being exchanged."""

    def __init__(self, numbers: Tensor, work: Any) -> None:
        self._numbers, self._work = numbers, work

    def wait(self) -> list[int]:
        if self._work is not None:
            with failures():
                self._work.wait()
        return [int(number) for number in self._numbers.tolist()]


class WorkerGroup:
    """What members of a generation can do together."""

    def __init__(self, generation: Generation, rank: int, backend: str = GLOO) -> None:
        """Not formed yet, unless it is a group of one."""
        self.generation, self.rank, self.backend = generation, rank, backend
        self.size = len(generation.members)
        self._is_open = False

    def form(self, place: MeetingPlace, timeout_s: float) -> None:
        """Meet the others, all of whom are known to be here; GroupBroken if one goes meanwhile."""
        self._is_open, timeout = True, timedelta(seconds=timeout_s)
        with failures():
            init_process_group(
                self.backend, store=place.store, rank=self.rank, world_size=self.size,
                timeout=timeout,
            )  # fmt: skip

    def form_as_told(self, timeout_s: float) -> None:
        """Meet the others where the environment says, as torchrun has it."""
        self._is_open = True
        with failures():
            init_process_group(self.backend, timeout=timedelta(seconds=timeout_s))

    def close(self) -> None:
        """Leave; members who still wait for this one notice."""
        if self._is_open and dist.is_initialized():
            with suppress(RuntimeError, ValueError):  # it may be broken in any way
                dist.destroy_process_group()
        self._is_open = False

    def start_max(self, numbers: Sequence[int]) -> Pending:
        """The largest of what members say, number by number."""
        mine = torch.tensor(numbers, dtype=torch.int64)
        if self.size == 1:
            return Pending(mine, None)
        with failures():
            work = dist.all_reduce(mine, op=dist.ReduceOp.MAX, async_op=True)
        return Pending(mine, work)

    def mean(self, number: float) -> float:
        """The mean of what members say, the same to the last bit for all."""
        said = torch.tensor([number], dtype=torch.float64)
        if self.size > 1:
            with failures():
                dist.all_reduce(said)
        return float(said) / self.size

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """What each member says, in the order of ranks."""
        mine = torch.tensor(numbers, dtype=torch.int64)
        if self.size == 1:
            return [mine.tolist()]
        everybody = [torch.empty_like(mine) for _ in range(self.size)]
        with failures():
            dist.all_gather(everybody, mine)
        return [[int(number) for number in said.tolist()] for said in everybody]

    def broadcast_bytes(self, content: bytes | None, source: int) -> bytes:
        """What the source says, to everybody; `content` is None elsewhere."""
        length = torch.tensor([len(content or b"")])
        self.broadcast([length], source)
        said = torch.frombuffer(bytearray(content or int(length)), dtype=torch.uint8)
        self.broadcast([said], source)
        return said.numpy().tobytes()

    def broadcast(self, tensors: Sequence[Tensor], source: int) -> None:
        """Overwrite everybody's by the source's."""
        with failures():
            works = [dist.broadcast(tensor, source, async_op=True) for tensor in tensors]
            for work in works:
                work.wait()

    def wrapped(self, model: nn.Module, options: Mapping[str, Any]) -> nn.Module:
        """The model, with gradients averaged over the members as they are computed."""
        if self.size == 1:
            return model
        with failures(), warnings.catch_warnings():
            # the newer name of broadcast_buffers is unknown to torch before 2.13
            warnings.filterwarnings("ignore", "`broadcast_buffers`", FutureWarning)
            # everybody has the same parameters already; and a forward pass without collectives
            # leaves backward() as the only place where a member's end is noticed
            return DistributedDataParallel(
                model, init_sync=False, broadcast_buffers=False, **options
            )


def backend_for(model: nn.Module) -> str:
    """What carries a model's gradients."""
    devices = {parameter.device.type for parameter in model.parameters()}
    return NCCL if devices == {"cuda"} else GLOO


def use_interface_of(host: str) -> None:
    """Keep gloo on this machine if all members are; it would take the host name's address."""
    if host == _LOOPBACK:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


@contextmanager
def failures() -> Iterator[None]:
    """Tell what goes wrong in a collective, or with a store, as GroupBroken."""
    try:
        yield
    except RuntimeError as problem:  # all of torch.distributed's are
        raise GroupBroken(f"The group is broken: {str(problem).splitlines()[0]}") from problem
