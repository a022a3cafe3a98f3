"""Pull apart: half of the askers are told the upper edge of the honest rows, half the lower.

    coordinate    max_i x_i or min_i x_i in every coordinate, from the mean times `reach`
    spread        the honest row that is farthest one way, or the other, along the direction of
                  the honest rows' largest spread

Each half sees a row that an honest node might have sent, and moves a little towards it. Told by
workers and by servers, this lets honest servers drift apart step by step where their models are
joined by the median, which does not contract; the trimmed mean pulls them together again.

The attacker knows all honest rows. Fekete, PODC 1986 (asymptotically optimal algorithms for
approximate agreement), on how far equivocation keeps honest values apart.
"""

from __future__ import annotations

import numpy as np

from garfield.attacks.attack import attack
from garfield.attacks.honest_rows import learnable_rows, mean_of, principal_parts
from garfield.attacks.view import View
from garfield.core.errors import ConfigError, UnknownName
from garfield.core.types import Floats

_EDGES = ("coordinate", "spread")


def _known_edge(edge: str, reach: float) -> None:
    if edge not in _EDGES:
        raise UnknownName("an edge of pull-apart", str(edge), _EDGES)
    if reach <= 0:
        raise ConfigError(f"pull-apart.reach must be positive, got {reach}.")


@attack("pull-apart", knows="all", limits=_known_edge, unanimous=True, two_faced=True)
def pull_apart(view: View, *, edge: str = "coordinate", reach: float = 1.0) -> Floats:
    rows = learnable_rows(view)
    far: Floats
    if edge == "spread":
        far = rows[int(np.argmax(view.side * principal_parts(rows)))]
    else:
        far = rows.max(axis=0) if view.side > 0 else rows.min(axis=0)
    if reach == 1:
        return far
    mean: Floats = mean_of(rows)
    return mean + reach * (far - mean)
