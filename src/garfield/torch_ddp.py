"""DistributedDataParallel that survives ranks which lie: any rule in place of the average.

    ddp = DistributedDataParallel(model)
    garfield.torch_ddp.robust(ddp, gar="multi-krum", f=1)

DDP hands gradients over in buckets, the last layers first. Each bucket is sent to
all ranks as soon as it is there, while the backward pass goes on, into its columns
of one (n, d) matrix; the rule runs once, when the last bucket has come. So what a
rank gets is the rule on the whole gradient: distances run over all buckets, and a
row that is not finite anywhere is set aside everywhere.

Every rank has every row and aggregates by itself. To share that work out, each rank
a part of the columns, would be cheaper, and would let a liar choose its part of the
result. Rows are in the order of ranks and the kernels give the same bits on any
number of threads, so that ranks with one kind of processor stay equal to the bit. A
rule that draws at random gets a seed to which every rank contributes, exchanged
after the gradients.

Costs (n − 1) d numbers received per rank and step, where averaging takes 2 d, and
memory for n d. What it cannot survive is in docs/ddp.md: it is for live peers whose
gradients may be anything, not for peers that fall silent.

A collective that is started within backward() holds what Python knows of that call. If
gloo's thread is the last to let go of it while Python ends, the process is aborted, and
if Python waits for that thread meanwhile, both wait for good. So the hook keeps
collectives until its next step, and `torch._dynamo` is imported here, before there is a
group (`transport/process_groups.py` says why).
"""

import secrets
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
import torch._dynamo  # before there is a group, which it would keep alive
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from garfield.core.errors import ConfigError
from garfield.gars import Explained, Rule, init

SEED_BITS = 62


@dataclass(frozen=True)
class _Sent:
    """A bucket on its way to the other ranks."""

    columns: slice
    gradients: Tensor
    """DDP's own buffer, which takes the result."""
    mine: Tensor
    """What is sent: the same, or converted."""
    work: Any
    done: "Future[Tensor]"


class RobustHook:
    """What `robust` has set up; `last` tells which ranks were trusted."""

    def __init__(self, rule: Rule, f: int, rows: Tensor, group: Any) -> None:
        """`rows` (n, d) is where gradients are gathered; `group` the ranks they come from."""
        self.rule, self.f, self.group = rule, f, group
        self.last: Explained | None = None
        """Explains the last step: trusted, left_out and set_aside are ranks."""
        self._rows = rows
        self._draws = rule.draws
        self._sent: list[_Sent] = []
        self._over: list[Any] = []
        """The last step's collectives: to be let go of by this thread, not by gloo's."""

    def take(self, bucket: Any) -> "Future[Tensor]":
        """Send a bucket; what it is replaced by is known when the last one has come."""
        if bucket.index() == 0:
            self._over = [sent.work for sent in self._sent]  # of an interrupted backward pass
            self._sent = []
        gradients = bucket.buffer()
        start = self._sent[-1].columns.stop if self._sent else 0
        columns = slice(start, start + len(gradients))
        if columns.stop > self._rows.shape[1]:
            raise ConfigError(
                f"DDP hands over more than the {self._rows.shape[1]} gradients that were there "
                "when robust() was called. Call it right after DistributedDataParallel()."
            )
        mine = gradients.to(self._rows.dtype)
        places = [row[columns] for row in self._rows]
        work = dist.all_gather(places, mine, group=self.group, async_op=True)
        devices = None if mine.device.type == "cpu" else [mine.device]
        done: Future[Tensor] = Future(devices=devices)
        self._sent.append(_Sent(columns, gradients, mine, work, done))
        if bucket.is_last():
            self._aggregate()
        return done

    def _aggregate(self) -> None:
        for sent in self._sent:
            sent.work.wait()
        rows = self._rows[:, : self._sent[-1].columns.stop]
        rule = self.rule.seeded(self._common_seed()) if self._draws else self.rule
        self.last = rule(rows, self.f, explain=True)
        vector: Any = self.last.vector
        for sent in self._sent:
            # not a view of the vector: DDP would read from the beginning of its storage
            sent.done.set_result(sent.gradients.copy_(vector[sent.columns]))
        self._over += [sent.work for sent in self._sent]
        self._sent = []

    def _common_seed(self) -> int:
        """A seed of a number from every rank: known to nobody before all rows have been sent."""
        mine = torch.tensor([secrets.randbits(SEED_BITS)], device=self._rows.device)
        everybody = [torch.empty_like(mine) for _ in self._rows]
        work = dist.all_gather(everybody, mine, group=self.group, async_op=True)
        work.wait()
        self._over.append(work)
        return reduce(lambda seed, part: seed ^ int(part), everybody, 0)


def robust(ddp: DistributedDataParallel, *, gar: str | Rule, f: int, **params: Any) -> RobustHook:
    """Aggregate the gradients of `ddp` by a rule that f lying ranks cannot move.

    `gar` is a rule or its name, pre-aggregation included ("nnm+multi-krum"); `params` are the
    rule's. To be called by all ranks alike, right after the model has been wrapped.
    """
    if not isinstance(ddp, DistributedDataParallel):
        raise ConfigError(
            f"robust() takes a DistributedDataParallel, got a {type(ddp).__name__}. "
            "Wrap the model first."
        )
    n = dist.get_world_size(ddp.process_group)
    rule = init(gar, n=n, f=f, **params).rule
    _require_no_broadcast(ddp)
    hook = RobustHook(rule, f, _empty_rows(ddp, n), ddp.process_group)
    ddp.register_comm_hook(hook, _on_bucket)
    return hook


def _on_bucket(
    hook: RobustHook,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch hides it; DDP looks for it
) -> Future[Tensor]:
    return hook.take(bucket)


def _require_no_broadcast(ddp: DistributedDataParallel) -> None:
    floats = [name for name, buffer in ddp.named_buffers() if buffer.is_floating_point()]
    if floats and ddp.broadcast_buffers:
        raise ConfigError(
            f"DDP copies {floats[0]} and other buffers from rank 0 to everybody before each "
            "forward pass, lies included. Wrap the model with broadcast_buffers=False: every "
            "rank then keeps statistics of its own."
        )


def _empty_rows(ddp: DistributedDataParallel, n: int) -> Tensor:
    """(n, d), as long as the whole gradient, in a dtype that holds every part of it."""
    named = [
        (name, parameter)
        for name, parameter in ddp.module.named_parameters()
        if parameter.requires_grad and name not in ddp.parameters_to_ignore
    ]
    for name, parameter in named:
        if not parameter.is_floating_point():
            raise ConfigError(f"Parameter {name} is {parameter.dtype}. Rules take real numbers.")
    for name, module in ddp.module.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            raise ConfigError(f"{name} has sparse gradients. Make it with sparse=False.")
    devices = {parameter.device for _, parameter in named}
    if len(devices) > 1:
        where = ", ".join(sorted(map(str, devices)))
        raise ConfigError(f"The model is spread over {where}. Put it on one device per rank.")
    dtype = reduce(torch.promote_types, (parameter.dtype for _, parameter in named))
    d = sum(parameter.numel() for _, parameter in named)
    return torch.empty(n, d, dtype=dtype, device=next(iter(devices)))
