"""Rules: a function of rows, and everything that is checked around it.

`@gar` turns ``(rows, *, f, ...) -> vector`` into a Rule and registers it. A
Rule is called with rows of any kind and shape; it reads them, checks the bound, lets
its stages and its function decide, sets bad rows aside (`shown.py`) and tries again
when there are some, and gives back what one row is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, overload

import numpy as np

from garfield.core.blame import blamed_on
from garfield.core.errors import BoundError, ConfigError, InputError
from garfield.core.registry import Parameters, Registry
from garfield.core.types import Vector
from garfield.gars.answers import checked_answer, is_ours
from garfield.gars.choice import Choice, Explained
from garfield.gars.shown import Shown
from garfield.kernels import Gathered, Kind, NonFinite, Rows, gather, read
from garfield.preaggregation.stage import Stage, has_seed, takes_seed

GARS: Registry[Rule] = Registry("a rule")

Memory = Literal["last aggregate", "own row"]
"""What a rule takes for its `reference`, unless one is given: see `Aggregator`."""


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
    remembers: Memory | None = None
    """What an aggregator gives it as `reference`, from its last round or from its node."""
    anyway: str = ""
    """What it does to rows where f = 0 too, as in "leave some out": a run that expects no faults
    averages instead."""
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

    @property
    def averages_without_faults(self) -> bool:
        """Whether a run that is told f = 0 takes the average instead: unless its user set an m."""
        return bool(self.anyway) and not self.params

    def seeded(self, seed: int) -> Rule:
        """The same rule; whatever in it draws at random, does so from this seed."""
        rule = replace(self, stages=tuple(stage.seeded(seed) for stage in self.stages))
        return rule.bind(seed=seed) if takes_seed(self.function, self.params) else rule

    def reseeded(self, change: Callable[[int | None], int | None]) -> Rule:
        """The same rule; each seed in it becomes what `change` makes of it, None if not set."""
        rule = replace(self, stages=tuple(stage.reseeded(change) for stage in self.stages))
        if not has_seed(self.function):
            return rule
        return rule.bind(seed=change(self.params.get("seed")))

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
            or_less = " or less" if most > 0 else ""
            lower = f"or lower f to {most}{or_less}" if most >= 0 else "to use it at all"
            raise BoundError(
                f"{self.name} needs n >= {needed} inputs to tolerate f={f} faults, got n={n}. "
                f"Wait for more replies {lower}."
            )
        self.limits(self._rows_seen(n), f, **self.params)

    def check_all(self, n: int, f: int, *, least: int) -> None:
        """Raise as `check` does for any number of rows from n down to `least`, naming it.

        Fewer than n are left where rows never come or are bad; each number is checked with the
        faults that it is then aggregated for (`garfield.gars.shown`).
        """
        self.check(n, f)
        if self.robust and least < n - f:
            raise BoundError(
                f"{self.name} with f={f} does without {f} of n={n} rows, and only {least} may "
                f"come. Wait for {n - f} or more, or raise f."
            )
        for rows in range(n - 1, least - 1, -1):
            most = min(f, self.max_f(rows)) if self.robust else f
            fewest = f - (n - rows) if self.robust else f
            if most < fewest:
                raise BoundError(
                    f"{self.name} needs {self.needs(fewest)} rows to tolerate f={fewest} faults "
                    f"when {rows} of n={n} are left. Add rows, or lower f."
                )
            for told in range(most, fewest - 1, -1):
                self._check_parameters(rows, n, told, least)

    def _check_parameters(self, rows: int, n: int, f: int, least: int) -> None:
        params = {**self.params}
        if isinstance(params.get("reference"), int):
            del params["reference"]  # one of the n, wherever it stands among fewer
        try:
            self.limits(self._rows_seen(rows), f, **params)
        except ConfigError as problem:
            raise ConfigError(
                f"With {rows} of n={n} rows, aggregated for f={f} faults: {problem} It must fit "
                f"any number of rows from {least} to {n}, as some may not come."
            ) from None

    def _rows_seen(self, n: int) -> int:
        for stage in self.stages:
            n = stage.count_after(n)
        return n

    # -- aggregating ----------------------------------------------------------------------

    @overload
    def __call__(
        self, gradients: Any, f: int | None = ..., *, mask: Any = ...,
        explain: Literal[False] = ..., **params: Any,
    ) -> Vector: ...  # fmt: skip

    @overload
    def __call__(
        self, gradients: Any, f: int | None = ..., *, mask: Any = ...,
        explain: Literal[True], **params: Any,
    ) -> Explained: ...  # fmt: skip

    def __call__(
        self,
        gradients: Any,
        f: int | None = None,
        *,
        mask: Any = None,
        explain: bool = False,
        **params: Any,
    ) -> Vector | Explained:
        """Aggregate n rows of numpy, torch, tensorflow or jax: vectors, one (n, d) array, arrays of
        any shape, state dicts, lists of arrays, nests of these, or a generator of any of them.

        What comes back is what one row is. Integers, booleans and whatever is no array come from
        the first trusted row; a row that is not like most is set aside (`kernels.gathered`).

        A row may be None: a peer that did not answer; how many faults the others are then
        aggregated for is said in `garfield.gars.shown`. `mask` (n, d) is true where a coordinate
        arrived; a row that is None in both was silent, one that is None here alone was lost on
        its way, and lowers f for nobody. With `explain`, who was trusted comes along.
        """
        rule = self.bind(**params) if params else self
        if f is None:
            if self.robust:
                raise ConfigError(f"{self.name} needs f, the number of faults to tolerate.")
            f = 0
        if mask is not None and not self.masks:
            able = ", ".join(name for name, other in GARS.items() if other.masks)
            raise ConfigError(f"{self.name} takes no presence mask. These rules do: {able}.")
        with self._named_in_errors():
            gathered = gather(gradients)
        n = len(gathered)
        if n == 0:
            raise InputError(f"{self.name}: there are no rows to aggregate.")
        rule.check(n, f)
        shown = self._shown(gathered, f, mask)
        vectors = gathered.rows
        if len(shown.places) < n:
            vectors = [vectors[i] for i in shown.places]
        with self._named_in_errors():
            rows, kind = read(vectors, shown.present)
            rule = rule._with_flat_reference(gathered)
        choice, left, told = rule._decide(rows, kind, shown)
        vector = kind.wrap(choice.vector)
        if gathered.flat is not None:
            vector = gathered.restored(vector, _donor(gathered, choice, rows, shown, left))
        return left.explain(choice, vector, told) if explain else vector

    def _shown(self, gathered: Gathered, f: int, mask: Any) -> Shown:
        """The rows there are, without misfits; InputError if too many are missing or unfit."""
        if mask is not None and gathered.flat is not None:
            raise InputError(f"{self.name}: a presence mask goes with plain vectors of one length.")
        unfit = gathered.misfits
        if unfit and not self.robust:
            row, why = min(unfit.items())
            raise InputError(f"{self.name}: row {row} does not fit the others ({why}).")
        rows = gathered.rows
        if unfit:
            rows = [unfit.get(i, row) for i, row in enumerate(rows)]  # they came: not missing
        shown = Shown.of(rows, f, mask)
        if unfit:
            shown = shown.without(np.isin(shown.places, list(unfit)), unfit)
        shown.require_few_set_aside(self)
        return shown

    def _with_flat_reference(self, gathered: Gathered) -> Rule:
        reference = self.params.get("reference")
        if reference is None or isinstance(reference, int):
            return self
        return self.bind(reference=gathered.as_vector(reference, "The reference"))

    @contextmanager
    def _named_in_errors(self) -> Iterator[None]:
        try:
            yield
        except InputError as problem:
            raise InputError(f"{self.name}: {problem}") from None

    def _decide(self, rows: Rows, kind: Kind, shown: Shown) -> tuple[Choice, Shown, int]:
        """Let the function decide for the faults that are left, setting bad rows aside."""
        try:
            told = self._told(rows, shown)
            return self._run(rows, kind, shown, told), shown, told
        except NonFinite as signal:
            bad = signal.bad[: len(shown.places)]  # a rule may have added rows of its own
            if not self.robust or not bad.any():
                raise InputError(f"{self.name}: the rows are too large to be added up.") from None
            shown = shown.without(bad, signal.reason)
            shown.require_few_set_aside(self)
            return self._decide(rows.subset(np.flatnonzero(~bad)), kind, shown)

    def _told(self, rows: Rows, shown: Shown) -> int:
        try:
            return shown.faults(self)
        except InputError:
            rows.require_finite()  # a bad row is one of the f, and fewer values then do
            raise

    def _run(self, rows: Rows, kind: Kind, shown: Shown, f: int) -> Choice:
        for stage in self.stages:
            rows = stage(rows, f=f)
        params = dict(self.params)
        if isinstance(params.get("reference"), int):
            params["reference"] = shown.place(self, params["reference"])
        elif params.get("reference") is not None:
            params["reference"] = kind.unwrap(params["reference"], rows.d, "The reference")
        if shown.set_aside:  # all n were checked; these are fewer
            self.limits(rows.n, f, **params)
        with blamed_on(f"The rule {self.name}"):
            answer = self.function(rows, f=f, **params)
        choice = answer if isinstance(answer, Choice) else Choice(answer)
        if is_ours(self.function):
            return choice
        return checked_answer(self.name, choice, rows, "torch" if kind.on_torch else "numpy")


def _donor(gathered: Gathered, choice: Choice, rows: Rows, given: Shown, left: Shown) -> int:
    """The row, by the caller's position, that gives the result what is not aggregated.

    The first that was trusted; where a rule decides per coordinate, the one nearest the result.
    """
    if choice.trusted is not None and len(choice.trusted):
        return int(left.places[int(min(choice.trusted))])
    first = int(left.places[0])
    if not gathered.has_own(first):
        return first  # they have nothing to differ in
    among = rows.subset(np.flatnonzero(np.isin(given.places, left.places)))
    try:
        return int(left.places[int(np.argmin(among.sq_dists_to(choice.vector)))])
    except NonFinite as signal:
        return int(left.places[int(np.argmin(signal.bad))])  # the first that can be measured


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
    remembers: Memory | None = None,
    anyway: str = "",
) -> Callable[[Callable[..., Vector | Choice]], Rule]:
    """Register a function ``(rows, *, f, ...) -> vector`` as a rule.

    >>> @gar("my-rule", needs=lambda f: 2 * f + 1)
    ... def my_rule(rows, *, f):
    ...     return rows.median()

    `rows` offers what `garfield.kernels.Rows` lists, and is an array too: ``for row in rows``,
    ``rows[i]`` and ``np.asarray(rows)`` work. From then on the rule works by name wherever a rule
    is named. With `remembers`, an aggregator hands it the last aggregate or the node's own row as
    `reference`.
    """

    def register(function: Callable[..., Vector | Choice]) -> Rule:
        if remembers and "reference" not in Parameters(name, function, frozenset()).defaults:
            raise ConfigError(f"{name} remembers its {remembers}: it must take a `reference`.")
        rule = Rule(
            name, function, needs, limits, variance_ratio, robust, selects, masks, translates,
            scales, cost, choose, remembers, anyway,
        )  # fmt: skip
        return GARS.add(name, rule)

    return register


def _whole(rule: str, name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ConfigError(f"{rule}: {name} must be a whole number of at least 0, got {value!r}.")
    return int(value)
