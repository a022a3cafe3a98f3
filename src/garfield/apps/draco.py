"""DRACO: one trusted server, redundant gradients, and lies undone exactly.

There are as many gradients a step as workers, each of a batch that is a function of
(seed, step, k), and every one is computed by r workers. A worker sends one coded row;
the server decodes the mean of all gradients, whatever f workers sent, and
learns who they were. So the model is the one that training without liars gives:
bit for bit with the repetition code, to about twelve digits of the gradient with the
cyclic one (`garfield.coding`). The price is r times the computation, and data that
all workers share.

Honest workers must agree bit for bit on what they compute of the same batch: the
same libraries, the same kind of processor, the same number of threads. One
that does not is taken for a liar.

Bounds: r ≥ 2 f + 1; with --asynchronous, where f more may not be waited for,
r ≥ 3 f + 1; r ≤ n; for the repetition code, r divides n. Costs r gradients a worker
and a step; rows of d float32 (repetition) or 2 d float64 (cyclic).

Late workers. Beside s that are silent, min(f, r − 1 − s − f) lies are undone; of the s, those
whose answers prove them faulty count among the f. So r = 2 f + 1 bears any f faults, be they
lies or silences, but f lies beside honest workers that miss their time-out end the run with
a DecodingError; r = 2 f + s + 1 bears s late ones as well, and does not wait for them.

Chosen where the paper is short. Momentum is at the server, so that a worker has no
state that a restart would lose, and the optimizer's is in the checkpoint: a resumed
run is the run that was never stopped. Float buffers (batch-norm statistics) are
coded with the gradients: each batch starts from the server's, and the server takes
their mean over all n batches. More than f liars, where the code can tell, end
the run with a DecodingError: what follows would be guesswork.

L. Chen, H. Wang, Z. Charles, D. Papailiopoulos, ICML 2018.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from garfield.adapters.contract import Adapter
from garfield.adapters.user_data import BatchesByStep
from garfield.apps.application import Application, WorkerPlace, application, one_framework
from garfield.apps.groups import Aggregation
from garfield.apps.run import Numbers, Run
from garfield.coding import CODES, Code, Decoded, make_code
from garfield.core.errors import BoundError, ConfigError, DecodingError
from garfield.gars import Explained, Rule, parse
from garfield.nodes.node import Gathered
from garfield.nodes.server import Server, ServerArguments
from garfield.nodes.worker import Worker, WorkerArguments
from garfield.transport.contract import CODED, GRADIENT, Payload

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from garfield.apps.settings import Settings


_SAID_BY_NOBODY = (Aggregation.gar, "average", "multi-krum")
"""Rules that stand in settings of which nobody has chosen one; the last was the default before."""


def kind_of(code: Code) -> str:
    """The kind of vectors that its rows are asked for as."""
    return (CODED if np.dtype(code.dtype) == CODED.dtype else GRADIENT).name


@dataclass(frozen=True)
class DracoSettings:
    """Settings of draco alone."""

    code: str = "repetition"
    """Which code: repetition (decoded by majority) or cyclic (decoded by Fourier transform)."""
    redundancy: int = 0
    """How many workers compute each gradient; 0 for the least that the code allows: 2 f + 1, for
    the repetition code the next number that divides the workers."""


def code_of(own: DracoSettings, numbers: Numbers) -> Code:
    """The code of a run: the same at every node."""
    return make_code(own.code, numbers.n_w, numbers.f_w, redundancy_of(own, numbers))


def redundancy_of(own: DracoSettings, numbers: Numbers) -> int:
    """r as it was set, or the least that the code allows."""
    return own.redundancy or CODES[own.code].least(numbers.n_w, _least(numbers))


def _least(numbers: Numbers) -> int:
    """r that undoes f lies, and does without whoever is not waited for."""
    return 2 * numbers.f_w + (numbers.n_w - numbers.q_w) + 1


class DracoWorker(Worker):
    """Computes r gradients a step, and sends one combination of them."""

    def __init__(
        self,
        model: Any,
        data: Sequence[BatchesByStep],
        *,
        place: int,
        code: Code,
        **worker: Unpack[WorkerArguments],
    ) -> None:
        """`data` are the batches of all workers, of whom this one is at `place`."""
        super().__init__(model, data[place], **worker)
        self.sends = kind_of(code)
        self._batches, self._place, self._code = data, place, code
        self._buffers = np.empty(0, np.float32)

    def fetch_model(self) -> tuple[Payload, Payload]:
        parameters, buffers = super().fetch_model()
        self._buffers = buffers.copy()
        return parameters, buffers

    def gradient(self) -> Payload:
        return self._code.encode(self._place, self._gradients())

    def _gradients(self) -> Iterator[Payload]:
        """One after the other, in the same memory, each with the buffers after its batch."""
        losses = []
        for k in self._code.computed_by(self._place):
            self.model.write_tail(self._buffers)  # every time: a forward pass moves them
            self.differentiate(self._batches[k])
            losses.append(self.loss)
            yield self._gradient
        self.loss = sum(losses) / len(losses)


class DracoServer(Server):
    """Gathers coded rows, and takes steps along what they decode to."""

    def get_coded(self, t: int, q: int, code: Code) -> list[Payload | None]:
        """The rows of step t by the workers' places; None for whoever was not heard.

        All f lies are undone where no more than r − 1 − 2f workers are silent.
        """
        heard = self.gather_gradients(
            t, q, kind=kind_of(code), numbers=code.numbers,
            needs=lambda f: code.n - (code.r - 1 - 2 * f),
        )  # fmt: skip
        self.heard = heard
        found = dict(zip(heard.names, heard.rows, strict=True))
        return [found.get(name) for name in self.workers]

    def update_model(self, gradient: Any) -> None:
        """Take a step along a decoded gradient; its tail becomes the model's buffers."""
        vector = np.asarray(gradient, dtype=np.float32)
        self._tail = vector[self.model.size :]
        super().update_model(vector[: self.model.size])


class Draco(Application[DracoSettings]):
    """One trusted server, gradients joined by a code, and data that all workers share."""

    own = DracoSettings

    def rule(self, settings: Settings) -> Rule:
        return parse("average")

    def averages(self, settings: Settings) -> bool:
        return False  # a code joins them

    def rule_name(self, settings: Settings) -> str:
        own = self.own_of(settings)
        return f"{own.code} code (r={redundancy_of(own, settings.numbers)})"

    def server_momentum(self, settings: Settings) -> float:
        return settings.learning.momentum

    def check(self, settings: Settings) -> None:
        if settings.nodes.servers != 1:
            raise ConfigError(f"draco has one server, got {settings.nodes.servers}.")
        if settings.aggregation.gar not in _SAID_BY_NOBODY:
            raise ConfigError(
                f"draco joins gradients by {self.rule_name(settings)}: leave "
                f"--gar {settings.aggregation.gar} out."
            )
        one_framework(
            settings,
            "The workers of draco compute the same gradients, bit for bit, and those of torch and "
            "tensorflow differ by rounding.",
        )
        numbers = settings.numbers
        code, least = code_of(self.own_of(settings), numbers), _least(numbers)
        if code.r < least:
            raise BoundError(
                f"draco needs redundancy >= {least} to undo f={numbers.f_w} lies with "
                f"{numbers.n_w - numbers.q_w} workers not waited for, got {code.r}. Wait for all "
                "(without --asynchronous), or have every gradient computed more often."
            )

    def worker(
        self, place: WorkerPlace, model: Adapter, **arguments: Unpack[WorkerArguments]
    ) -> Worker:
        settings, names = place.settings, place.settings.worker_names
        code = code_of(self.own_of(settings), settings.numbers)
        batches = [place.batches_of(each) for each in names]
        return DracoWorker(model, batches, place=names.index(place.name), code=code, **arguments)

    def server(self, model: Adapter, **arguments: Unpack[ServerArguments]) -> Server:
        return DracoServer(model, **arguments)


@application("draco", Draco)
def draco(ps: Server, run: Run[DracoSettings]) -> None:
    """One trusted server, every gradient computed r times: lies are undone exactly."""
    assert isinstance(ps, DracoServer)  # as registered
    code = code_of(run.own, run.numbers)
    secret = np.random.default_rng()  # not from the run's seed, which liars know
    for t in ps.steps(run.steps):
        rows = ps.get_coded(t, run.numbers.q_w, code)
        started = time.perf_counter()
        assert ps.heard is not None  # get_coded has just heard them
        decoded = _decoded(code, rows, ps.heard, secret, f"{ps.name} cannot decode step {t}")
        run.aggregation_s += time.perf_counter() - started
        run.explained = _explained(decoded, ps.heard, ps.workers)
        ps.update_model(decoded.mean)
        run.after_step(ps, run)


def _decoded(
    code: Code,
    rows: Sequence[Payload | None],
    heard: Gathered,
    secret: np.random.Generator,
    trouble: str,
) -> Decoded:
    proven = sum(silence.reason.proof for silence in heard.silent.values())
    try:
        return code.decode(rows, secret=secret, proven=proven)
    except DecodingError as failure:
        raise DecodingError(f"{trouble}. {failure}") from None


def _explained(decoded: Decoded, heard: Gathered, workers: Sequence[str]) -> Explained:
    """Who was trusted: all who were heard but the liars."""
    lied = {workers[place]: why for place, why in decoded.liars.items()}
    rows = [(i, name) for i, name in enumerate(heard.names) if heard.rows[i] is not None]
    trusted = tuple(i for i, name in rows if name not in lied)
    left_out = {i: lied[name] for i, name in rows if name in lied}
    return Explained(decoded.mean, trusted, tuple(left_out), left_out)
