"""Mimic: all f attackers copy one honest row, so that it counts f + 1 times.

Nothing about the lie is unusual, and no rule can tell it from the truth; yet
where honest nodes hold different data, one of them now outweighs the others.
Unless `victim` names the row, it is the one farthest out along the direction of
the honest rows' largest spread, argmax_i |⟨v, x_i − μ⟩|, v being the first
principal component. ⟨v, x_i − μ⟩ is entry i of √λ u, with λ, u the largest
eigenpair of the (h, h) centred Gram matrix: no vector of length d is needed.

The paper settles on one victim in its first rounds and keeps to it; without
`victim` it is chosen anew each time here, an attack having no memory.
The attacker knows all honest rows. Karimireddy, He and Jaggi, ICLR 2022.
"""

from __future__ import annotations

from numbers import Integral

import numpy as np

from garfield.attacks.attack import attack
from garfield.attacks.honest_rows import learnable_rows, sq_dists
from garfield.attacks.view import View
from garfield.core.errors import ConfigError
from garfield.core.types import Floats, Vector


def farthest_out(rows: Floats) -> int:
    """The row with the largest part along the direction of largest spread."""
    gram = -0.5 * sq_dists(rows)
    gram -= gram.mean(axis=0)
    gram -= gram.mean(axis=1, keepdims=True)  # ⟨x_i − μ, x_j − μ⟩
    _, vectors = np.linalg.eigh(gram)
    return int(np.argmax(np.abs(vectors[:, -1])))


def _a_position(victim: int | None) -> None:
    if victim is not None and not (isinstance(victim, Integral) and victim >= 0):
        raise ConfigError(f"mimic.victim must be the position of an honest row, got {victim!r}.")


@attack("mimic", knows="all", limits=_a_position, unanimous=True)
def mimic(view: View, *, victim: int | None = None) -> Vector:
    if victim is None:
        rows = learnable_rows(view)
        return rows[farthest_out(rows)]
    assert view.honest is not None  # Attack.__call__ refuses such a view
    if victim >= len(view.honest):
        last = len(view.honest) - 1
        raise ConfigError(f"mimic.victim must be within 0..{last} (h - 1), got {victim}.")
    return view.honest[victim]
