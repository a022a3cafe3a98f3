"""AggregaThor: one trusted server, workers that lie, and links that lose parts of gradients.

Damaskinos, El Mhamdi, Guerraoui, Guirguis and Rouault, "AggregaThor: Byzantine Machine
Learning via Robust Gradient Aggregation", SysML 2019, and their poster of it; Guirguis's
thesis, 3.6.2 and 3.7.

The loop is SSMW's. The rules are Multi-Krum, its default (n ≥ 2f + 3, of which m rows are
averaged, 1 ≤ m ≤ n − f − 2) and Bulyan (n ≥ 4f + 3, m ≤ n − 2f − 2); any other
may be named too, as the authors compare with the median and plain averaging.

What is its own is the transport: the first `lossy_workers` workers send their
gradients by UDP, where datagrams are lost (`garfield.transport.datagrams.carrier`),
and what is missing when the round's time is up is filled by the policy `fill`
(`garfield.transport.datagrams.filling`); with `lossy_models` the model reaches them so
too. The paper is short here, and this was assumed:

- The authors fill with random values and say no more. A row so filled is not
  its sender's any more, and at 10 % loss every large gradient is damaged. So
  **workers on lossy links count towards f, along with those that lie**, unless
  the rule is told what is missing (`fill = mask`).
- With `mask` a coordinate may lack the values of all L lossy workers, so the
  rule must bear f liars among n − L rows; those are honest values and fewer of
  them, so f itself stays, also where one of the L is not heard at all. Rules that
  take a mask: median, trimmed mean, MeaMed.
- A worker cannot leave out a part of its model: lost parts of models are filled
  with the last round's, also for `mask`, and the worker then counts towards f.
- Statistics of batch normalisation at a vector's end are lost and filled like
  the rest, and joined by their median, which bears them as it bears liars.
- The original patched TensorFlow so that workers cannot write to the server's
  graph. Here workers cannot write to anybody: they are asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from garfield.apps.application import Application, application
from garfield.apps.run import Numbers, Run
from garfield.core.errors import BoundError, ConfigError
from garfield.core.types import Flags
from garfield.gars import GARS, Rule
from garfield.nodes.server import Server
from garfield.transport.datagrams.links import LossyLinks

if TYPE_CHECKING:
    from garfield.apps.settings import Settings


@dataclass(frozen=True)
class AggregaThorSettings:
    """Settings of aggregathor alone."""

    lossy_workers: int = 0
    """How many workers, the first honest ones, send by UDP, which may lose parts."""
    packet_loss: float = 0.0
    """The share of datagrams dropped on those links, on purpose, for trials."""
    fill: str = "random"
    """What stands for lost values: random, zeros, last, or mask."""
    lossy_models: bool = False
    """Models travel by UDP on those links too."""

    @property
    def faulty_links(self) -> int:
        """How many workers count as faults because what they send may be filled."""
        told = self.fill == "mask" and not self.lossy_models
        return 0 if told else self.lossy_workers


class AggregaThor(Application[AggregaThorSettings]):
    """One trusted server, and links of which some may lose parts."""

    own = AggregaThorSettings
    defaults: Mapping[str, Any] = MappingProxyType({"gar": "multi-krum"})

    def faulty_workers(self, settings: Settings) -> int:
        return super().faulty_workers(settings) + self.own_of(settings).faulty_links

    def averages(self, settings: Settings) -> bool:
        """Never where a rule is told what is missing: the average cannot be."""
        own = self.own_of(settings)
        return not (own.fill == "mask" and own.lossy_workers) and super().averages(settings)

    def lossy_links(self, settings: Settings) -> LossyLinks | None:
        own = self.own_of(settings)
        if not own.lossy_workers:
            return None
        honest = [name for name in settings.worker_names if name not in settings.liars]
        return LossyLinks(
            frozenset(honest[: own.lossy_workers]), frozenset(settings.server_names),
            models=own.lossy_models, fill=own.fill, loss=own.packet_loss, seed=settings.seed,
        )  # fmt: skip

    def check(self, settings: Settings) -> None:
        super().check(settings)
        own, numbers, rule = self.own_of(settings), settings.numbers, settings.rule
        lossy, honest = own.lossy_workers, numbers.n_w - numbers.liars_w
        # refuses wrong ones
        LossyLinks(frozenset(), frozenset(), fill=own.fill, loss=own.packet_loss)
        if not 0 <= lossy <= honest:
            raise ConfigError(
                f"lossy_workers must be within 0..{honest} (honest ones), got {lossy}."
            )
        if not lossy and (own.packet_loss or own.lossy_models):
            raise ConfigError("Without lossy_workers nothing is lost. Say how many there are.")
        faults = own.faulty_links + numbers.liars_w
        if rule.robust and faults > numbers.f_w:
            raise BoundError(
                f"{own.faulty_links} workers on lossy links, filled by {own.fill}, and "
                f"{numbers.liars_w} that lie make {faults} faults, and f is {numbers.f_w}. Raise "
                f"f_workers to {faults}, have fewer of them, or take fill = mask with a rule like "
                "median."
            )
        if own.fill == "mask" and lossy:
            _check_mask(numbers, rule, lossy)


def _check_mask(numbers: Numbers, gar: Rule, lossy: int) -> None:
    if not gar.masks:
        able = ", ".join(name for name, rule in GARS.items() if rule.masks)
        raise ConfigError(
            f"{gar.name} cannot leave out single values. With fill = mask, choose one of: {able}."
        )
    sure, needed = numbers.q_w - lossy, gar.needs(numbers.f_w)
    if sure < needed:
        raise BoundError(
            f"Where all {lossy} lossy workers lack a value, {sure} of {numbers.q_w} are left, and "
            f"{gar.name} needs {needed} to tolerate f={numbers.f_w} faults. Lower lossy_workers "
            f"to {max(0, numbers.q_w - needed)} or less, or f."
        )


@application("aggregathor", AggregaThor)
def aggregathor(ps: Server, run: Run[AggregaThorSettings]) -> None:
    """One trusted server: workers may lie, and some send by UDP, which may lose parts."""
    for t in ps.steps(run.steps):
        gradients = ps.get_gradients(t, run.numbers.q_w)
        mask = presence(ps, run.own.lossy_workers) if run.own.fill == "mask" else None
        ps.update_model(run.join_gradients(gradients, mask))
        run.after_step(ps, run)


def presence(ps: Server, lossy: int) -> list[Flags | None] | None:
    """Where the values of each of the last gradients arrived; None if nothing was lost.

    Of a worker that was silent nothing arrived; it is None if its link loses nothing, so that
    its silence is its own. The first `lossy` workers have the other links.
    """
    assert ps.heard is not None  # gradients were gathered
    size, heard = ps.model.size, ps.heard
    everywhere = np.ones(size, np.bool_)
    silent = {name for name, row in zip(heard.names, heard.rows, strict=True) if row is None}
    lost = silent.intersection(ps.workers[:lossy])

    def arrived(name: str) -> Flags | None:
        if name in silent:
            return ~everywhere if name in lost else None
        return ~heard.holes[name].missing_values(size) if name in heard.holes else everywhere

    return [arrived(name) for name in heard.names] if heard.holes or lost else None
