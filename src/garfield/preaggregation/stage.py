"""Stages: what may stand in front of a rule, turning rows into rows.

A stage is a function of the rows that returns rows, nearly always a mix of
them (see `Rows.mixed`): no vector is stored, and a rule that only needs
distances and a weighted sum costs as much after a stage as without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from garfield.core.blame import blamed_on
from garfield.core.errors import InputError
from garfield.core.registry import Parameters, Registry
from garfield.kernels.rows import Rows

STAGES: Registry[Stage] = Registry("a pre-aggregation")


@dataclass(frozen=True)
class Stage:
    """A pre-aggregation, with its parameters."""

    name: str
    function: Callable[..., Rows]
    rows_after: Callable[..., int]
    """Called with n and the parameters: how many rows come out, or a ConfigError."""
    scales: bool
    translates: bool
    params: dict[str, Any] = field(default_factory=dict)

    def bind(self, **params: Any) -> Stage:
        """The same stage with some parameters set: ``bucketing.bind(s=3)``."""
        Parameters(self.name, self.function, frozenset({"f"})).check(params)
        return replace(self, params={**self.params, **params})

    @property
    def draws(self) -> bool:
        """Whether it draws at random, and no seed has fixed how."""
        return takes_seed(self.function, self.params)

    def seeded(self, seed: int) -> Stage:
        """The same stage; if it draws at random, then from this seed."""
        return self.bind(seed=seed) if self.draws else self

    def reseeded(self, change: Callable[[int | None], int | None]) -> Stage:
        """The same stage; its seed becomes what `change` makes of it, None if it is not set."""
        return self.bind(seed=change(self.params.get("seed"))) if has_seed(self.function) else self

    def __call__(self, rows: Rows, *, f: int) -> Rows:
        with blamed_on(f"The pre-aggregation {self.name}"):
            made = self.function(rows, f=f, **self.params)
        after = self.count_after(rows.n)
        if not isinstance(made, Rows) or made.shape != (after, rows.d):
            shape = f" of shape {tuple(made.shape)}" if hasattr(made, "shape") else ""
            raise InputError(
                f"The pre-aggregation {self.name} returned a {type(made).__name__}{shape}. It must "
                f"return {after} rows of {rows.d} numbers: rows.mixed(matrix), or some of rows."
            )
        return made

    def count_after(self, n: int) -> int:
        """How many rows come out when n go in."""
        return self.rows_after(n, **self.params)


def stage(
    name: str,
    *,
    rows_after: Callable[..., int] = lambda n, **_: n,
    scales: bool = True,
    translates: bool = True,
) -> Callable[[Callable[..., Rows]], Stage]:
    """Register a function ``(rows, *, f, ...) -> rows`` as a pre-aggregation.

    `scales` and `translates` say whether scaling or shifting all rows does the
    same to what comes out; the contract tests hold a stage to it.
    """

    def register(function: Callable[..., Rows]) -> Stage:
        return STAGES.add(name, Stage(name, function, rows_after, scales, translates))

    return register


def has_seed(function: Callable[..., Any]) -> bool:
    """Whether a rule's or a stage's function has a parameter `seed`."""
    return "seed" in Parameters("", function, frozenset({"f"})).defaults


def takes_seed(function: Callable[..., Any], params: Mapping[str, Any]) -> bool:
    """Whether a rule's or a stage's function has a parameter `seed` that is not set."""
    return has_seed(function) and params.get("seed") is None
