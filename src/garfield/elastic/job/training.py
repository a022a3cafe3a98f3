"""The context in which a training script becomes elastic.

The script keeps its loop. All that changes who trains happens between two batches, in
`batches()`: whoever is told to leave leaves there, newcomers begin there, and a step that broke
because a worker ended is begun again there, with other workers and the same samples.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import Dataset

from garfield.core.errors import ConfigError, RunError
from garfield.elastic.job.agreement import Vote
from garfield.elastic.job.cursor import Cursor, Division, MicroBatch
from garfield.elastic.job.environment import JobAccess, job_of_this_process
from garfield.elastic.job.gradient_noise import GradientNorms
from garfield.elastic.job.group import GroupBroken, WorkerGroup
from garfield.elastic.job.learning_rate import scaled
from garfield.elastic.job.loading import loaded
from garfield.elastic.job.measurements import Meter
from garfield.elastic.job.options import ElasticOptions
from garfield.elastic.job.out_of_memory import is_out_of_memory, limit_memory
from garfield.elastic.job.participation import Participation
from garfield.elastic.job.state import Stateful, TrainingState
from garfield.elastic.policy.learning_rate import ADASCALE, factor


class ElasticTraining:
    """One worker of a training whose workers and batch size may change. Use as a context."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        data: Dataset[Any],
        options: ElasticOptions | None = None,
        *,
        extra: Mapping[str, Stateful] | None = None,
        loader: Mapping[str, Any] | None = None,
        ddp: Mapping[str, Any] | None = None,
        access: JobAccess | None = None,
    ) -> None:
        """`extra` are further things with a state that all workers share, a scheduler say; `loader`
        and `ddp` options of DataLoader and DistributedDataParallel; `access` the job, if it is
        not the one that the environment tells."""
        self.options = options or ElasticOptions()
        self._data, self._loader, self._ddp = data, dict(loader or {}), dict(ddp or {})
        if not isinstance(data, Sized):
            raise ConfigError("The data set has no length. Give one with __len__ and __getitem__.")
        cursor = Cursor(len(data), self.options.seed)
        self.state = TrainingState(model, optimizer, cursor, extra)
        self._participation = Participation(
            self.state, access or job_of_this_process(self.options.checkpoint_dir), self.options,
            self._unwrap,
        )  # fmt: skip
        self.model: nn.Module = model
        """To be called in place of the script's own: averages gradients over the workers."""
        self.stepped = False
        """Whether the last batch has ended a step: only then should a scheduler take one."""
        self._meter = Meter()
        self._division = Division(0, 1, self.options.batch)
        self._set_up_for: tuple[WorkerGroup | None, int] = (None, 0)
        self._part: MicroBatch | None = None
        self._vote: Vote | None = None
        self._broken: GroupBroken | None = None
        self._norms: GradientNorms | None = None
        self._sigterm: Any = None

    def __enter__(self) -> ElasticTraining:
        if self.options.memory_mb is not None:
            limit_memory(self.options.memory_mb)
        if threading.current_thread() is threading.main_thread():
            self._sigterm = signal.signal(signal.SIGTERM, lambda *_: self.leave())
        try:
            self._participation.start()
            self._set_up()
        except BaseException:
            self._close("failed")
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and not self.left:
                self._participation.finish()
            elif kind is None:
                self._participation.linger()
        finally:
            self._close("failed" if kind else "left" if self.left else "finished")

    def _close(self, ending: str) -> None:
        self._participation.close({"state": ending, **self._where()})
        if self._sigterm is not None:
            signal.signal(signal.SIGTERM, self._sigterm)

    @property
    def left(self) -> bool:
        """Whether this worker trains no more, as others go on without it, or all were told to."""
        return self._participation.left

    @property
    def rank(self) -> int:
        return self._division.rank

    @property
    def workers(self) -> int:
        return self._division.workers

    @property
    def generation(self) -> int:
        """Which set of workers this is, counted from 1."""
        group = self._participation.group
        return 0 if group is None else group.generation.number

    @property
    def batch(self) -> int:
        """Samples of a micro-batch, at most."""
        return self._division.batch

    @property
    def step_number(self) -> int:
        """Steps applied so far, by all workers alike."""
        return self.state.step

    @property
    def indices(self) -> tuple[int, ...]:
        """Samples of the batch that is being trained on; none for a filler."""
        part = self._part
        return part.indices if part is not None and part.weight else ()

    def leave(self) -> None:
        """Leave after one of the next steps, as on SIGTERM: for a notice that a machine will go."""
        self._participation.told_to_leave = True

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of so many, the one under way included."""
        while not self.left and self.state.cursor.epoch < count:
            yield self.state.cursor.epoch

    def batches(self) -> Iterator[Any]:
        """This worker's batches from here to the end of the epoch; `step()` goes with each."""
        epoch = self.state.cursor.epoch
        while not self.left and self.state.cursor.epoch == epoch:
            cursor = self.state.cursor
            place = (cursor.seed, cursor.epoch, cursor.used, self.rank)
            parts = cursor.micro_batches(self._division)
            for part, batch in loaded(self._data, parts, self._loader, place):
                self._part = part
                yield batch
                if self._between_batches():
                    break

    @contextmanager
    def step(self) -> Iterator[None]:
        """Train on a batch: what ends another worker, or fills this one's memory, is survived.

        When the block ends, the optimizer takes a step, unless more micro-batches belong to it.
        """
        part = self._part
        if part is None:
            raise RunError("There is no batch to train on. Take one from batches() first.")
        self.stepped = False
        try:
            if self._vote is None:
                self._vote = self._participation.vote()
        except GroupBroken as problem:
            self._broken = problem
        try:
            with self._exchange_at(part):
                yield
        except GroupBroken as problem:
            self._broken = problem
        except Exception as problem:
            if not is_out_of_memory(problem):
                raise
            self._shrink(problem)
        if part.is_last and self._broken is None:
            self._apply(part)
        self._part = None

    def backward(self, loss: Tensor) -> None:
        """Compute gradients of a mean loss over the batch, and average them over the workers."""
        if self._part is None or self._broken is not None:
            return
        weight = self._part.weight
        try:
            (loss if weight == 1.0 else loss * weight).backward()  # type: ignore[no-untyped-call]
            if self._norms is not None and self._part.is_last:
                self._measure_noise(self._norms, self._part.advance)
        except RuntimeError as problem:
            if self.workers == 1 or is_out_of_memory(problem):
                raise
            raise GroupBroken(str(problem).splitlines()[0]) from problem

    def _measure_noise(self, norms: GradientNorms, step: int) -> None:
        """Of a step with equal shares, before the script does anything to the gradients."""
        small, large = norms.take(each.grad for each in self.state.model.parameters())
        if step == self._division.step and step % self.workers == 0:
            self.state.noise.add(small, step / self.workers, large, step)

    def _exchange_at(self, part: MicroBatch) -> AbstractContextManager[Any]:
        """Gradients are exchanged in the backward pass of a step's last micro-batch."""
        if part.is_last or not isinstance(self.model, DistributedDataParallel):
            return nullcontext()
        return self.model.no_sync()

    def _apply(self, part: MicroBatch) -> None:
        state = self.state
        assert state.reference_step is not None  # set when the first group formed
        by = factor(
            self.options.learning_rate,
            self._division.step,
            state.reference_step,
            state.noise.samples,
        )
        with scaled(state.optimizer, by):
            state.optimizer.step()
        state.optimizer.zero_grad()
        state.cursor = state.cursor.after(part.advance)
        state.step += 1
        state.generation = self.generation
        self._meter.count(part.advance)
        self.stepped = True

    def _shrink(self, problem: Exception) -> None:
        self._participation.halve_batch()
        self._broken = GroupBroken(f"out of memory at {self.batch} samples.")
        self._broken.__cause__ = problem
        self._participation.break_off()

    def _between_batches(self) -> bool:
        """Change what is to be changed; whether batches have to be divided anew."""
        if self._part is not None:
            raise RunError("A batch was not trained on. Put `with job.step():` around its use.")
        try:
            if self._broken is None:
                if not self.stepped:
                    return False  # more micro-batches belong to this step
                self._report()
                self._participation.checkpoint_if_due()
                vote, self._vote = self._vote, None
                self._participation.after_step(vote)
        except GroupBroken as problem:
            self._broken = problem
        if self._broken is not None:
            self.state.optimizer.zero_grad()
            broken, self._broken, self._vote = self._broken, None, None
            self._participation.recover(broken)
        return self._set_up()

    def _set_up(self) -> bool:
        """Be what the group and the batch size ask for; whether that is something new."""
        group, batch = self._participation.group, self._participation.batch.allowed
        if self.left or group is None:
            return True
        before, self._set_up_for = self._set_up_for, (group, batch)
        if before == self._set_up_for:
            return False
        self._division = Division(group.rank, group.size, batch, self.options.fixed_step)
        if group is not before[0]:
            self.model = group.wrapped(self.state.model, self._ddp)
            is_measured = self.options.learning_rate == ADASCALE
            if is_measured and isinstance(self.model, DistributedDataParallel):
                self._norms = GradientNorms(self.model, group)
        self._meter.restart()
        self._participation.watcher.report({"state": "training", **self._where()})
        return True

    def _unwrap(self) -> None:
        """End the wrapper of this group, with its buffers and its hooks on the gradients."""
        self.model, self._norms = self.state.model, None

    def _report(self) -> None:
        if self.state.step % self.options.report_every == 0:
            report = {"state": "training", **self._where(), **self._meter.report()}
            if self.state.noise.samples is not None:
                report["noise_scale"] = self.state.noise.samples
            self._participation.watcher.report(report, at_once=False)

    def _where(self) -> dict[str, int | None]:
        return {
            "generation": self.generation,
            "step": self.state.step,
            "epoch": self.state.cursor.epoch,
            "workers": self.workers,
            "batch": self.batch,
            "most_batch": self._participation.batch.most,
        }
