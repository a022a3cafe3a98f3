"""Mimic: all f attackers copy one honest row, so that it counts f + 1 times.

Nothing about the lie is unusual, and no rule can tell it from the truth; yet
where honest nodes hold different data, one of them now outweighs the others: the
same one in every round, or the harm would average out.

In its first rounds the attack learns the direction z of the honest rows' largest
spread and sums up how far each node's rows lie along it, S_i = Σ_t ⟨z, x_i − μ⟩:

    z ← first principal component of the first round; then, as Oja's rule would have it,
    z ← t z + Σ_i (x_i − μ)⟨x_i − μ, z⟩, each term of length 1, divided by the length of the sum

The victim is the node of the largest |S_i|, after `learn` rounds for good; should it fall
silent, the largest of those that are left. `victim` names a row by its position instead.

The attacker knows all honest rows. Karimireddy, He and Jaggi, ICLR 2022.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from garfield.attacks.attack import attack
from garfield.attacks.honest_rows import (
    mean_of,
    principal_parts,
    spread_along,
    usable,
)
from garfield.attacks.view import View
from garfield.core.errors import ConfigError
from garfield.core.types import Floats, Matrix, Vector


def _a_position(victim: int | None, learn: int) -> None:
    if victim is not None and not (isinstance(victim, Integral) and victim >= 0):
        raise ConfigError(f"mimic.victim must be the position of an honest row, got {victim!r}.")
    if learn < 1:
        raise ConfigError(f"mimic.learn must be at least 1 round, got {learn}.")


@attack("mimic", knows="all", limits=_a_position, unanimous=True)
def mimic(view: View, *, victim: int | None = None, learn: int = 10) -> Vector:
    if victim is None:
        return _followed(view, learn)
    assert view.honest is not None  # Attack.__call__ refuses such a view
    if victim >= len(view.honest):
        last = len(view.honest) - 1
        raise ConfigError(f"mimic.victim must be within 0..{last} (h - 1), got {victim}.")
    return view.honest[victim]


def _followed(view: View, learn: int) -> Vector:
    """The row of the node that has strayed the most so far."""
    assert view.honest is not None  # Attack.__call__ refuses such a view
    shown, names = (view.honest, view.names) if view.likely is None else (view.likely, ())
    fine = usable(shown)
    rows, at = shown[fine], np.arange(len(shown))[fine]
    names = tuple(names[i] if names else str(i) for i in at)
    memory = view.memory
    if memory.get("rounds", 0) < learn:
        memory["rounds"] = memory.get("rounds", 0) + 1
        strayed = memory.setdefault("strayed", {})
        for name, part in zip(names, _learned(memory, rows), strict=True):
            strayed[name] = strayed.get(name, 0.0) + float(part)
    strayed = memory["strayed"]
    return rows[max(range(len(rows)), key=lambda i: abs(strayed.get(names[i], 0.0)))]


def _learned(memory: dict[str, Any], rows: Floats) -> Matrix:
    """(h,) how far each row lies along the direction, which this round has turned a little."""
    mean, before = mean_of(rows), memory.get("direction")
    parts = principal_parts(rows) if before is None else spread_along(rows, mean, before)[0]
    pull = _unit(np.einsum("i,ij->j", parts, rows))  # the parts add up to 0: no mean to take off
    turned = pull if before is None else _unit((memory["rounds"] - 1) * before + pull)
    memory["direction"] = turned
    return spread_along(rows, mean, turned)[0]


def _unit(vector: Matrix) -> Matrix:
    length = float(np.sqrt(np.einsum("i,i->", vector, vector)))
    return vector / length if length > 0 else vector
