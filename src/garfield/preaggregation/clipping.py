"""Clipping: shorten every row that is longer than a threshold.

    y_i = x_i · min(1, τ / |x_i|)

`clipping` takes τ from the caller (static). `arc` adapts it: the
k = ⌊2 (f/n) (n − f)⌋ longest rows are cut to the length of the longest one
left, so that whatever an attacker sends is no longer than an honest row.

Costs O(n d) for the lengths. ARC: Allouah et al., ICLR 2025.
"""

import numpy as np

from garfield.core.errors import ConfigError
from garfield.core.types import Matrix
from garfield.kernels.rows import Rows
from garfield.preaggregation.stage import stage


def _positive_tau(n: int, *, tau: float = 1.0) -> int:
    if not tau > 0:
        raise ConfigError(f"clipping.tau must be positive, got {tau}.")
    return n


@stage("clipping", rows_after=_positive_tau, scales=False, translates=False)
def clipping(rows: Rows, *, f: int, tau: float = 1.0) -> Rows:
    return _shortened(rows, rows.sq_norms(), tau)


@stage("arc", translates=False)
def arc(rows: Rows, *, f: int) -> Rows:
    sq_norms = rows.sq_norms()
    cut = 2 * f * (rows.n - f) // rows.n
    return _shortened(rows, sq_norms, float(np.sqrt(np.sort(sq_norms)[rows.n - cut - 1])))


def _shortened(rows: Rows, sq_norms: Matrix, tau: float) -> Rows:
    norms = np.sqrt(sq_norms)
    long = norms > tau
    if not long.any():
        return rows
    kept = np.ones(rows.n)
    kept[long] = tau / norms[long]

    def sq_dists() -> Matrix:
        """|a x − b y|² from |x − y|², |x|² and |y|², without cancelling where a = b."""
        moved = kept * sq_norms
        dists = kept[:, None] * kept[None, :] * rows.sq_dists()
        dists += (kept[:, None] - kept[None, :]) * (moved[:, None] - moved[None, :])
        return np.maximum(dists, 0.0)

    # cut to less than 1e-4, the large terms cancel to nothing: let the kernel look again
    return rows.mixed(np.diag(kept), sq_dists if kept.min() > 1e-4 else None)
