"""Arithmetic on the (n, n) squared distances, once the vectors have been read.

With weights that sum to one, the squared distance of row i to the point
z = Σ w_j x_j is  Σ_j w_j D_ij − ½ Σ_jk w_j w_k D_jk,  so a rule that ends in a
weighted mean can iterate without touching the vectors again.
"""

from __future__ import annotations

import numpy as np

from garfield.core.types import Indices, Matrix
from garfield.kernels.rows import Rows

_EXACT_WITHIN = 1e4  # beyond this many scales, distances are taken again in float64
_PULLED_TO = 1e6  # and rows beyond this many are pulled in: turns their direction by 1e-6


def sq_dists_to_mean(sq_dists: Matrix, weights: Matrix) -> Matrix:
    """(n,) squared distances of the rows to their weighted mean; weights sum to one."""
    to_each: Matrix = sq_dists @ weights
    return np.maximum(to_each - 0.5 * float(weights @ to_each), 0.0)


def sum_smallest(sq_dists: Matrix, count: int) -> Matrix:
    """(n,) sums of each row's `count` smallest distances to others."""
    others = sq_dists.copy()
    np.fill_diagonal(others, np.inf)
    return np.asarray(np.partition(others, count - 1, axis=1)[:, :count].sum(axis=1))


def smallest(scores: Matrix, count: int, sq_dists: Matrix) -> Indices:
    """The rows of the `count` smallest scores, ascending by position.

    Equal scores are told apart by a row's distance to all others, so that the
    choice does not depend on how the rows are numbered: two rows that are each
    other's only neighbour always score the same.
    """
    return np.sort(np.lexsort((sq_dists.sum(axis=1), scores))[:count])


def tightest_ball(sq_dists: Matrix, count: int) -> tuple[int, float]:
    """The row whose nearest `count` rows, itself included, lie closest; and how close (squared)."""
    radii = np.partition(sq_dists, count - 1, axis=1)[:, count - 1]
    centre = int(smallest(radii, 1, sq_dists)[0])
    return centre, float(radii[centre])


def centred_gram(sq_dists: Matrix, centre: int) -> Matrix:
    """Inner products of the rows around row `centre`: ½ (D_ic + D_jc − D_ij)."""
    to_centre = sq_dists[centre]
    return np.asarray(0.5 * (to_centre[:, None] + to_centre[None, :] - sq_dists))


def mixed_sq_dists(sq_dists: Matrix, mix: Matrix) -> Matrix:
    """Squared distances of mix (m, n) times the rows; each row of mix sums to one.

    Around a row in the thick of the others, so that a far row leaves the
    products of the near ones alone.
    """
    centre, _ = tightest_ball(sq_dists, len(sq_dists) // 2 + 1)
    gram = mix @ centred_gram(sq_dists, centre) @ mix.T
    norms = np.diagonal(gram)
    dists = np.maximum(norms[:, None] + norms[None, :] - 2.0 * gram, 0.0)
    np.fill_diagonal(dists, 0.0)
    return dists


def pull_in(rows: Rows, centre: int, scale: float) -> Rows:
    """Rows so far out that distances cancel, moved nearer along their line to row `centre`.

    A weight on a row at R scales enters squared distances as w R², whose
    rounding error soon outweighs the distances of the others (measured: at
    R = 1e30 an error of 7e3 where 7 was right). A rule in which far rows only
    pull by their direction may move them to 1e6 scales first.
    """
    dists = np.sqrt(rows.sq_dists()[centre])
    if not (dists > _EXACT_WITHIN * scale).any():
        return rows
    kept = np.ones(rows.n)
    far = dists > _PULLED_TO * scale
    kept[far] = _PULLED_TO * scale / dists[far]
    mix = np.diag(kept)
    mix[:, centre] += 1.0 - kept
    return rows.mixed(mix)
