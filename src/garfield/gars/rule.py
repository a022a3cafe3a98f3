"""Rules: a function of rows, and everything that is checked around it.

`@gar` turns ``(rows, *, f, ...) -> vector`` into a Rule and registers it. A
Rule is called with vectors of any kind; it reads them, checks the bound, lets
its stages and its function decide, sets faulty rows aside and tries again when
there are some, and gives back a vector of the kind it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, overload

import numpy as np

from garfield.core.errors import BoundError, ConfigError, InputError
from garfield.core.registry import Parameters, Registry
from garfield.core.types import Indices, Vector
from garfield.gars.choice import Choice, Explained
from garfield.kernels import Kind, NonFinite, Rows, read
from garfield.preaggregation.stage import Stage, takes_seed

GARS: Registry[Rule] = Registry("a rule")

_MISSING = "missing"


@dataclass(frozen=True, repr=False)
class Rule:
    """A gradient aggregation rule: n vectors in, one out."""

    name: str
    function: Callable[..., Vector | Choice]
    least: Callable[[int], int]
    """The smallest n that the function itself allows for f."""
    limits: Callable[..., None]
    """Called with n, f and the parameters: raises ConfigError where they do not fit."""
    ratio: Callable[[int, int], float] | None
    robust: bool
    selects: bool
    """Decides row by row, so it can say which rows it trusted."""
    masks: bool
    """Accepts a presence mask."""
    translates: bool
    """Adding a vector to all rows adds it to the result."""
    scales: bool
    """Multiplying all rows by a factor multiplies the result."""
    cost: str
    choose: str
    """When to choose it, in a few words."""
    stages: tuple[Stage, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<rule {self.name}>"

    # -- making one from another ------------------------------------------------------

    def bind(self, **params: Any) -> Rule:
        """The same rule with some parameters set: ``multi_krum.bind(m=4)``."""
        Parameters(self.name, self.function, frozenset({"f"})).check(params)
        return replace(self, params={**self.params, **params})

    def after(self, *stages: Stage) -> Rule:
        """The same rule behind these pre-aggregations, the first one first."""
        return replace(
            self,
            name="+".join([*(stage.name for stage in stages), self.name]),
            stages=(*stages, *self.stages),
            masks=False,
            scales=self.scales and all(stage.scales for stage in stages),
            translates=self.translates and all(stage.translates for stage in stages),
        )

    @property
    def draws(self) -> bool:
        """Whether it, or one of its stages, draws at random, and no seed has fixed how."""
        stages = any(stage.draws for stage in self.stages)
        return stages or takes_seed(self.function, self.params)

    def seeded(self, seed: int) -> Rule:
        """The same rule; whatever in it draws at random, does so from this seed."""
        rule = replace(self, stages=tuple(stage.seeded(seed) for stage in self.stages))
        return rule.bind(seed=seed) if takes_seed(self.function, self.params) else rule

    # -- what it can bear ---------------------------------------------------------------

    def needs(self, f: int) -> int:
        """The smallest n that tolerates f faults."""
        n = max(1, self.least(_whole(self.name, "f", f)))
        while self._rows_seen(n) < self.least(f):
            n += 1
        return n

    def max_f(self, n: int) -> int:
        """The largest f that n inputs tolerate; −1 if they do not even allow f = 0."""
        if not self.robust:
            return 0
        f = -1
        while self.needs(f + 1) <= n:
            f += 1
        return f

    def variance_ratio(self, n: int, f: int) -> float | None:
        """Δ of the thesis's equation 3.13, or None where it is not known.

        Honest gradients must vary less than |∇L| / Δ for the rule to be sure of its direction.
        """
        self.check(n, f)
        return None if self.ratio is None or self.stages else self.ratio(n, f)

    def check(self, n: int, f: int) -> None:
        """Raise BoundError or ConfigError if n rows with f faults are not allowed."""
        needed = self.needs(f)
        if n < needed:
            most = self.max_f(n)
            lower = f"or lower f to {most} or less" if most >= 0 else "to use it at all"
            raise BoundError(
                f"{self.name} needs n >= {needed} inputs to tolerate f={f} faults, got n={n}. "
                f"Wait for more replies {lower}."
            )
        self.limits(self._rows_seen(n), f, **self.params)

    def _rows_seen(self, n: int) -> int:
        for stage in self.stages:
            n = stage.count_after(n)
        return n

    # -- aggregating ----------------------------------------------------------------------

    @overload
    def __call__(
        self,
        gradients: Any,
        f: int | None = ...,
        *,
        mask: Any = ...,
        explain: Literal[False] = ...,
        **params: Any,
    ) -> Vector: ...

    @overload
    def __call__(
        self,
        gradients: Any,
        f: int | None = ...,
        *,
        mask: Any = ...,
        explain: Literal[True],
        **params: Any,
    ) -> Explained: ...

    def __call__(
        self,
        gradients: Any,
        f: int | None = None,
        *,
        mask: Any = None,
        explain: bool = False,
        **params: Any,
    ) -> Vector | Explained:
        """Aggregate: a list of 1-D vectors or one (n, d) array, numpy, torch or tensorflow.

        A row may be None: a peer that did not answer. `mask` (n, d) is true where a coordinate
        arrived. With `explain`, who was trusted comes along with the vector.
        """
        rule = self.bind(**params) if params else self
        if f is None:
            if self.robust:
                raise ConfigError(f"{self.name} needs f, the number of faults to tolerate.")
            f = 0
        if mask is not None and not self.masks:
            able = ", ".join(name for name, other in GARS.items() if other.masks)
            raise ConfigError(f"{self.name} takes no presence mask. These rules do: {able}.")
        if not hasattr(gradients, "__len__"):
            gradients = list(gradients)
        n = len(gradients)
        if n == 0:
            raise InputError(f"{self.name}: there are no rows to aggregate.")
        rule.check(n, f)
        silent = _silent(gradients)
        heard = [i for i in range(n) if i not in silent]
        if silent:
            gradients = [gradients[i] for i in heard]
            mask = None if mask is None else [mask[i] for i in heard]
        self._spare(n, f, silent)
        try:
            rows, kind = read(gradients, mask)
        except InputError as problem:
            raise InputError(f"{self.name}: {problem}") from None
        choice, judged, set_aside = rule._decide(rows, kind, np.array(heard), f, silent)
        vector = kind.wrap(choice.vector)
        return _explained(choice, vector, n, judged, set_aside) if explain else vector

    def _decide(
        self, rows: Rows, kind: Kind, judged: Indices, f: int, set_aside: dict[int, str]
    ) -> tuple[Choice, Indices, dict[int, str]]:
        """Let the function decide, setting non-finite rows aside; `judged` are the rows left."""
        n = len(judged) + len(set_aside)
        try:
            return self._run(rows, kind, judged, f - len(set_aside)), judged, set_aside
        except NonFinite as signal:
            bad = signal.bad[: len(judged)]  # a rule may have added rows of its own
            if not self.robust or not bad.any():
                raise InputError(f"{self.name}: the rows are too large to be added up.") from None
            set_aside = {**set_aside, **dict.fromkeys(judged[bad].tolist(), signal.reason)}
            self._spare(n, f, set_aside)
            fine = np.flatnonzero(~bad)
            return self._decide(rows.subset(fine), kind, judged[fine], f, set_aside)

    def _run(self, rows: Rows, kind: Kind, judged: Indices, f: int) -> Choice:
        for stage in self.stages:
            rows = stage(rows, f=f)
        params = dict(self.params)
        if isinstance(params.get("reference"), int):
            params["reference"] = self._place(params["reference"], judged)
        elif params.get("reference") is not None:
            params["reference"] = kind.unwrap(params["reference"], rows.d, "The reference")
        answer = self.function(rows, f=f, **params)
        return answer if isinstance(answer, Choice) else Choice(answer)

    def _place(self, row: int, judged: Indices) -> int:
        """Where one of the caller's rows stands among those that are left."""
        places = np.flatnonzero(judged == row)
        if not len(places):
            raise InputError(
                f"{self.name}: row {row}, the reference, is missing or not finite, and nothing can "
                "take its place. Give another row or a vector as reference, or none."
            )
        return int(places[0])

    def _spare(self, n: int, f: int, set_aside: Mapping[int, str]) -> None:
        """f faults may be spent on rows set aside, and no more."""
        if self.robust and len(set_aside) > f:
            who = ", ".join(f"{row} ({why})" for row, why in sorted(set_aside.items()))
            raise InputError(
                f"{self.name} tolerates f={f} faults among n={n} rows, but {len(set_aside)} "
                f"cannot be used: rows {who}. Raise f or find out why they fail."
            )
        if not self.robust and len(set_aside) == n:
            raise InputError(f"{self.name}: there are no rows to aggregate, all are missing.")


def gar(
    name: str,
    *,
    needs: Callable[[int], int],
    limits: Callable[..., None] = lambda n, f, **_: None,
    variance_ratio: Callable[[int, int], float] | None = None,
    robust: bool = True,
    selects: bool = False,
    masks: bool = False,
    translates: bool = True,
    scales: bool = True,
    cost: str = "?",
    choose: str = "",
) -> Callable[[Callable[..., Vector | Choice]], Rule]:
    """Register a function ``(rows, *, f, ...) -> vector`` as a rule.

    >>> @gar("my-rule", needs=lambda f: 2 * f + 1)
    ... def my_rule(rows, *, f):
    ...     return rows.median()

    `rows` offers what `garfield.kernels.Rows` lists; ``rows.matrix()`` is the plain
    (n, d) array. From then on the rule works by name wherever a rule is named.
    """

    def register(function: Callable[..., Vector | Choice]) -> Rule:
        rule = Rule(
            name, function, needs, limits, variance_ratio, robust, selects, masks, translates,
            scales, cost, choose,
        )  # fmt: skip
        return GARS.add(name, rule)

    return register


def _whole(rule: str, name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ConfigError(f"{rule}: {name} must be a whole number of at least 0, got {value!r}.")
    return int(value)


def _silent(gradients: Any) -> dict[int, str]:
    if isinstance(gradients, Sequence):
        return {i: _MISSING for i, row in enumerate(gradients) if row is None}
    return {}


def _explained(
    choice: Choice, vector: Vector, n: int, judged: Indices, set_aside: Mapping[int, str]
) -> Explained:
    def spread(values: Any, empty: float) -> Any:
        if values is None or len(values) != len(judged):
            return None
        whole = np.full(n, empty)
        whole[judged] = values
        return whole

    trusted = None if choice.trusted is None else tuple(judged[choice.trusted].tolist())
    left_out = None if trusted is None else tuple(i for i in range(n) if i not in trusted)
    weights, scores = spread(choice.weights, 0.0), spread(choice.scores, np.nan)
    return Explained(vector, trusted, left_out, set_aside, weights, scores)
