"""Attacks: a function of a view, and everything that is checked around it.

`@attack` turns ``(view, *, ...) -> vector`` into an Attack and registers it. An
Attack is called with a View; it hides what the attacker may not know, lets the
function make up its lie, and sends it in the dtype of an honest vector. None
instead of a vector is silence: the whole reply is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from garfield.attacks.view import Knows, View, require_floats
from garfield.core.blame import blamed_on
from garfield.core.errors import ConfigError, InputError
from garfield.core.naming import parse_call
from garfield.core.registry import Parameters, Registry
from garfield.core.types import Floats, Vector

ATTACKS: Registry[Attack] = Registry("an attack")


@dataclass(frozen=True, repr=False)
class Attack:
    """One way to lie, with its parameters."""

    name: str
    function: Callable[..., Vector | None]
    knows: Knows
    """What the attacker sees: nothing, its own honest vector, or all honest rows."""
    knows_rule: bool
    """Whether it knows the rule that its lie will meet, and may try it out."""
    limits: Callable[..., None]
    """Called with all parameters: raises ConfigError where they make no sense."""
    unanimous: bool
    """All f attackers send the same vector, whatever their rank."""
    two_faced: bool
    """Half of the askers are told one lie and half another: `view.side` says for which it is."""
    finite: bool
    """What overflows is sent as the largest finite number: infinite rows are set aside, and a
    liar wants to be heard."""
    relabel: Callable[[Any, int], Any] | None
    """The lie of one that lies in the training data: (labels, classes) to labels."""
    params: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value!r}" for name, value in self.params.items())
        return f"<attack {self.name}({params})>" if params else f"<attack {self.name}>"

    @property
    def kind(self) -> Literal["vector", "data"]:
        """The place of the lie: the vector that is sent, or the data that is learnt from."""
        return "vector" if self.relabel is None else "data"

    def bind(self, **params: Any) -> Attack:
        """The same attack with some parameters set: ``reverse.bind(factor=-10)``."""
        parameters = Parameters(self.name, self.function, frozenset())
        parameters.check(params)
        bound = {**self.params, **params}
        self.limits(**{**parameters.defaults, **bound})
        return replace(self, params=bound)

    def __call__(self, view: View) -> Floats | None:
        """The (d,) vector to send in this view, or None for silence."""
        if self.knows == "all" and view.honest is None:
            blind = ", ".join(name for name, other in ATTACKS.items() if other.knows != "all")
            raise ConfigError(
                f"{self.name} must see the honest rows, and this view holds none. Pass honest=, "
                f"or choose an attack that needs none: {blind}."
            )
        with np.errstate(over="ignore", invalid="ignore"):  # rows may be huge, and own not finite
            with blamed_on(f"The attack {self.name}"):
                lie = self.function(view.to(self.knows, rule=self.knows_rule), **self.params)
            return None if lie is None else self._fitted(np.asarray(lie), view)

    def _fitted(self, lie: Floats, view: View) -> Floats:
        """A copy in the dtype of an honest vector, which never shares memory with the view."""
        if lie.shape != (view.d,):
            raise InputError(f"{self.name} made up a lie of shape {lie.shape}, not ({view.d},).")
        return view.sendable(lie) if self.finite else np.array(lie, dtype=view.dtype)

    def rows(
        self,
        honest: Any,
        *,
        f: int,
        rng: np.random.Generator,
        n: int | None = None,
        own: Sequence[Floats] | None = None,
        defence: Callable[[Any], Vector] | None = None,
        memory: dict[str, Any] | None = None,
    ) -> list[Floats | None]:
        """The f lies told beside these (h, d) honest rows: for tables, tests and simulations.

        Without `own`, attacker i would honestly have sent row i mod h. Without `n`, all
        nodes are heard: n = h + f. A unanimous lie is made up once and listed f times. Who calls
        it round by round passes the same `memory` every time.
        """
        if f < 0:
            raise ConfigError(f"f must be at least 0, got {f}.")
        honest = np.asarray(honest)
        require_floats("honest", honest, 2)
        n = len(honest) + f if n is None else n
        noted = {} if memory is None else memory

        def lie(rank: int) -> Floats | None:
            mine = honest[rank % len(honest)] if own is None else own[rank]
            return self(
                View(
                    own=mine, honest=honest, n=n, f=f, rank=rank, rng=rng, defence=defence,
                    memory=noted,
                )
            )  # fmt: skip

        return [lie(0)] * f if self.unanimous and f else [lie(rank) for rank in range(f)]

    def labels(self, labels: Any, classes: int) -> Any:
        """The labels this attacker trains on: the true ones, unless it lies in the data."""
        return labels if self.relabel is None else self.relabel(labels, classes)


def attack(
    name: str,
    *,
    knows: Knows,
    knows_rule: bool = False,
    aliases: Sequence[str] = (),
    limits: Callable[..., None] = lambda **_: None,
    unanimous: bool = False,
    two_faced: bool = False,
    finite: bool = True,
    relabel: Callable[[Any, int], Any] | None = None,
) -> Callable[[Callable[..., Vector | None]], Attack]:
    """Register a function ``(view, *, ...) -> vector or None`` as an attack.

    >>> @attack("my-lie", knows="own")
    ... def my_lie(view, *, factor=2.0):
    ...     return factor * view.own

    From then on it works by name wherever an attack is named.
    """
    if knows not in ("nothing", "own", "all"):
        raise ConfigError(f'{name}: knows must be "nothing", "own" or "all", got {knows!r}.')

    def register(function: Callable[..., Vector | None]) -> Attack:
        made = Attack(
            name, function, knows, knows_rule, limits, unanimous, two_faced, finite, relabel
        )
        for alias in (name, *aliases):
            ATTACKS.add(alias, made)
        return made

    return register


def parse(text: str) -> Attack:
    """The attack that this text names: "mimic", "reverse(factor=-10)"."""
    name, params = parse_call(text, example="reverse(factor=-10)")
    return ATTACKS[name].bind(**params)
