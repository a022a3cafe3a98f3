"""init and aggregate, the thesis's two calls (3.3.2), and what is kept between them.

A rule is a pure function of its rows. Some rules rest on more than one round: centered clipping
steps from the last aggregate, MoNNA trusts the node's own row, bucketing and DnC draw at random,
anew in every round. An aggregator is what one node owns to give them that:

- `reference`, if the caller gives one, or the rule itself was set up with one;
- else the last aggregate or the node's own row, for a rule that asks for it (`Rule.remembers`);
- a seed for each round, drawn from `rng` once the rows are there, so that nobody who sent one
  knew it. A rule whose text fixes the seed draws from that seed and the number of the round.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from garfield.core.errors import InputError
from garfield.core.types import Vector
from garfield.gars.choice import Explained
from garfield.gars.naming import parse
from garfield.gars.rule import Rule
from garfield.kernels import Gathered, gather
from garfield.kernels.kinds import framework_of
from garfield.kernels.structures import flatten


class Aggregator:
    """A rule for n inputs with f faults, whose bound has been checked, and its memory."""

    def __init__(self, rule: Rule, n: int, f: int, rng: np.random.Generator | None = None) -> None:
        """Without `rng`, what is drawn comes from the system's entropy."""
        self.rule, self.n, self.f = rule, n, f
        self._rng = rng
        self._round = 0
        self._last: Vector | None = None
        self._free = rule.remembers is not None and rule.params.get("reference") is None

    def __repr__(self) -> str:
        return f"<aggregator {self.rule.name}, n={self.n}, f={self.f}>"

    @overload
    def aggregate(
        self, rows: Any, *, mask: Any = ..., own: Vector | None = ...,
        reference: Vector | None = ..., explain: Literal[False] = ...,
    ) -> Vector: ...  # fmt: skip

    @overload
    def aggregate(
        self, rows: Any, *, mask: Any = ..., own: Vector | None = ...,
        reference: Vector | None = ..., explain: Literal[True],
    ) -> Explained: ...  # fmt: skip

    def aggregate(
        self,
        rows: Any,
        *,
        mask: Any = None,
        own: Vector | None = None,
        reference: Vector | None = None,
        explain: bool = False,
    ) -> Vector | Explained:
        """Aggregate n rows, None in place of a row that never came.

        Rows are vectors, or any structure of arrays (see `Rule`), in a list or drawn one by one.
        `own` is the row of the node itself, for rules that trust it; others ignore it.
        """
        rows = gather(rows)
        if len(rows) != self.n:
            raise InputError(
                f"{self.rule.name} was set up for n={self.n} rows, got {len(rows)}. "
                "Pass None for a row that did not arrive, or set it up anew."
            )
        rule = self.rule.reseeded(self._seed)
        self._round += 1
        if reference is None and self._free:
            reference = self._remembered(rows, own)
        if reference is not None:
            rule = rule.bind(reference=reference)
        found = rule(rows, self.f, mask=mask, explain=True)
        if self._free and self.rule.remembers == "last aggregate":
            self._last = _copy(found.vector, rows)  # the caller may write to what it gets
        return found if explain else found.vector

    def forget(self) -> None:
        """Forget the last aggregate: after a jump or a restart it is no guide any more."""
        self._last = None

    def needs(self, f: int) -> int:
        """The smallest n that tolerates f faults."""
        return self.rule.needs(f)

    def max_f(self, n: int) -> int:
        """The largest f that n inputs tolerate."""
        return self.rule.max_f(n)

    def variance_ratio(self, n: int, f: int) -> float | None:
        """Δ of equation 3.13, or None where it is not known."""
        return self.rule.variance_ratio(n, f)

    def _seed(self, fixed: int | None) -> int | None:
        """This round's seed, in place of one that is fixed for all rounds or not set."""
        if fixed is not None:
            return int(np.random.default_rng((fixed, self._round)).integers(2**63))
        return None if self._rng is None else int(self._rng.integers(2**63))

    def _remembered(self, rows: Gathered, own: Vector | None) -> Vector | None:
        if self.rule.remembers == "own row":
            return own
        return self._last if self._last is not None and rows.fits(self._last) else None


def init(
    name: str | Rule, n: int, f: int, rng: np.random.Generator | None = None, **params: Any
) -> Aggregator:
    """Set a rule up by name for n inputs with f faults; refuses what the rule cannot bear."""
    rule = parse(name) if isinstance(name, str) else name
    rule = rule.bind(**params)
    rule.check(n, f)
    return Aggregator(rule, n, f, rng)


def _copy(result: Vector, rows: Gathered) -> Vector:
    if rows.signature is not None:
        return flatten(result).owned()
    framework = framework_of(result)
    if framework == "torch":
        return result.clone()
    return result.copy() if framework == "numpy" else result  # others' cannot be written to
