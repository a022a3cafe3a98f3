"""View: what an attacker sees at the moment it must answer.

The same moment looks different to different attackers. One that knows all sees
every honest row; one that knows its own vector sees no other; one that knows
nothing learns how long a vector is and of which dtype. Whether it knows the rule
that its lie will meet is another question. `View.to` hides the rest, so that an
attack cannot know more than it says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from garfield.core.errors import ConfigError, InputError
from garfield.core.types import Floats, Vector

Knows = Literal["nothing", "own", "all"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class View:
    """One attacker's view of one round. Time and randomness come from outside."""

    own: Floats
    """(d,) what this node would send if it were honest."""
    honest: Floats | None = None
    """(h, d) what all honest nodes send; None for an attacker that cannot see it."""
    names: tuple[str, ...] = ()
    """Who sent the honest rows, for attackers that want to meet one of them again; else empty."""
    likely: Floats | None = None
    """(l, d) what honest nodes might have sent, where they all send the same: a lie that hides
    in the spread of honest rows hides in the spread of these."""
    n: int
    """All nodes, attackers included."""
    f: int
    """The attackers, who collude."""
    rank: int = 0
    """Which of the f attackers this one is: 0..f−1."""
    rng: np.random.Generator
    """The generator that an attack takes its randomness from."""
    defence: Callable[[Any], Vector] | None = None
    """The rule that the server applies to a list of all rows, if the attackers know it."""
    side: int = 1
    """Which half of the askers the lie is for, 1 or −1: an attack may have two faces."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What the attackers noted in earlier rounds, and note for later ones; theirs alone."""
    d: int = field(init=False)
    """The length of a vector."""
    dtype: np.dtype[Any] = field(init=False)
    """The dtype in which a lie is sent."""

    def __post_init__(self) -> None:
        if not 1 <= self.f < self.n:
            raise ConfigError(f"f={self.f} attackers among n={self.n} nodes: f must be in 1..n-1.")
        if not 0 <= self.rank < self.f:
            raise ConfigError(f"rank must be within 0..{self.f - 1} (f - 1), got {self.rank}.")
        require_floats("own", self.own, 1)
        for name, rows in (("honest", self.honest), ("likely", self.likely)):
            if rows is not None:
                self._require_alike(name, rows)
        if self.honest is not None and self.names and len(self.names) != len(self.honest):
            raise InputError(f"{len(self.honest)} honest rows have {len(self.names)} names.")
        object.__setattr__(self, "d", len(self.own))
        object.__setattr__(self, "dtype", self.own.dtype)

    def _require_alike(self, name: str, rows: Floats) -> None:
        require_floats(name, rows, 2)
        theirs, mine = rows[0], self.own
        if (len(theirs), theirs.dtype) != (len(mine), mine.dtype):
            raise InputError(
                f"The {name} rows are {len(theirs)} × {theirs.dtype}, the attacker's own "
                f"vector {len(mine)} × {mine.dtype}. They must come from the same model."
            )

    def __repr__(self) -> str:
        return f"<view of attacker {self.rank} of f={self.f} among n={self.n}, d={self.d}>"

    def sendable(self, lie: Floats) -> Floats:
        """A copy as it can be sent: in the honest dtype, cut off at the largest finite number."""
        most = np.finfo(self.dtype).max
        return np.clip(lie, -most, most).astype(self.dtype, copy=False)

    def to(self, knows: Knows, *, rule: bool = False) -> View:
        """The same moment in the eyes of an attacker that knows so much, and maybe the rule."""
        defence = self.defence if rule else None
        if knows == "all":
            return replace(self, defence=defence)
        if knows == "own":
            return replace(self, honest=None, likely=None, names=(), defence=defence)
        blind = object.__new__(_Blind)  # not by its constructor, which would read `own`
        blind.__dict__.update(
            vars(self), own=None, honest=None, likely=None, names=(), defence=defence
        )
        return blind


class _Blind(View):
    """A view without even the attacker's own vector."""

    def __getattribute__(self, name: str) -> Any:
        if name == "own":
            raise ConfigError(
                "An attack that knows nothing has no view.own, only view.d and view.dtype. "
                'Register it with knows="own".'
            )
        return super().__getattribute__(name)


def require_floats(name: str, array: Any, ndim: int) -> None:
    """Raise InputError unless this is a numpy array of floats, of so many dimensions."""
    if not isinstance(array, np.ndarray) or not np.issubdtype(array.dtype, np.floating):
        kind = getattr(array, "dtype", type(array).__name__)
        raise InputError(f"{name} must be a numpy array of floats, got {kind}.")
    if array.ndim != ndim or array.size == 0:
        shape = "(d,)" if ndim == 1 else "(h, d)"
        raise InputError(f"{name} must be of shape {shape}, not empty, got {array.shape}.")
