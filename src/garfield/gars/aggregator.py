"""init and aggregate: the thesis's two calls (3.3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, overload

from garfield.core.errors import InputError
from garfield.core.types import Vector
from garfield.gars.choice import Explained
from garfield.gars.naming import parse
from garfield.gars.rule import Rule


@dataclass(frozen=True)
class Aggregator:
    """A rule for n inputs with f faults, whose bound has been checked."""

    rule: Rule
    n: int
    f: int

    @overload
    def aggregate(self, rows: Any, *, mask: Any = ..., explain: Literal[False] = ...) -> Vector: ...

    @overload
    def aggregate(self, rows: Any, *, mask: Any = ..., explain: Literal[True]) -> Explained: ...

    def aggregate(
        self, rows: Any, *, mask: Any = None, explain: bool = False
    ) -> Vector | Explained:
        """Aggregate n rows, None in place of a row that never came."""
        if len(rows) != self.n:
            raise InputError(
                f"{self.rule.name} was set up for n={self.n} rows, got {len(rows)}. "
                "Pass None for a row that did not arrive, or set it up anew."
            )
        if explain:
            return self.rule(rows, self.f, mask=mask, explain=True)
        return self.rule(rows, self.f, mask=mask)

    def needs(self, f: int) -> int:
        """The smallest n that tolerates f faults."""
        return self.rule.needs(f)

    def max_f(self, n: int) -> int:
        """The largest f that n inputs tolerate."""
        return self.rule.max_f(n)

    def variance_ratio(self, n: int, f: int) -> float | None:
        """Δ of equation 3.13, or None where it is not known."""
        return self.rule.variance_ratio(n, f)


def init(name: str | Rule, n: int, f: int, **params: Any) -> Aggregator:
    """Set a rule up by name for n inputs with f faults; refuses what the rule cannot bear."""
    rule = parse(name) if isinstance(name, str) else name
    rule = rule.bind(**params)
    rule.check(n, f)
    return Aggregator(rule, n, f)
