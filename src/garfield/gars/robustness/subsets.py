"""Whose view is the worst: of all sets S of n − f rows, the one that an answer serves the least.

    ratio(S) = |R − mean_S|² / ((1/|S|) Σ_{i ∈ S} |x_i − mean_S|²)

With u_i = x_i − R it is m/(q − m), where m = |mean_S u|² and q = mean_S |u|². All sets are
looked at where there are few; else sets are improved one after the other. For any vector v,
m >= 2⟨v, mean_S u⟩ − |v|², with equality at v = mean_S u: so, with r = m/q, the h rows of
largest 2⟨v, u_i⟩ − r |u_i|² make a set whose m/q is no smaller.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations

import numpy as np

from garfield.core.types import Indices, Matrix

UNBOUNDED = 1e6
"""A ratio above this is told as infinite: no bound of a robust rule comes near it."""

FAR = 1e100
"""Whatever is beyond is no honest row and no answer: its square would overflow."""

_MOST_SETS = 3000
_TINY = 1e-300
_ROUNDING = 1e-10  # deviations below this share of a vector's length are no deviations


def worst_set(rows: Matrix, answer: Matrix, f: int) -> tuple[float, Indices]:
    """The largest ratio over all sets, and the set; rows that are not finite are in none."""
    with np.errstate(over="ignore", invalid="ignore"):
        away = rows - answer
        usable = np.flatnonzero(np.abs(away).max(axis=1) < FAR)
    h = len(rows) - f
    if len(usable) < h:
        return 0.0, usable
    away = away[usable]
    sq = np.einsum("ij,ij->i", away, away)
    floor = _ROUNDING**2 * max(float(answer @ answer), float(np.partition(sq, h - 1)[h - 1]))
    few = math.comb(len(usable), h) <= _MOST_SETS
    chosen = _best_of_all(away, sq, h) if few else _improved(away, sq, h)
    return _ratio(away[chosen], floor), usable[chosen]


def ratio_of(rows: Matrix, answer: Matrix, chosen: Indices) -> float:
    """The ratio of one set."""
    away = rows[chosen] - answer
    sq = np.einsum("ij,ij->i", away, away)
    return _ratio(away, _ROUNDING**2 * max(float(answer @ answer), float(sq.max())))


def _ratio(away: Matrix, floor: float) -> float:
    """The ratio of the set of these rows; what is below `floor` is rounding."""
    mean = away.mean(axis=0)
    moved = float(mean @ mean)
    if moved <= floor:
        return 0.0
    centred = away - mean
    ratio = moved / max(float(np.einsum("ij,ij->", centred, centred)) / len(away), floor)
    return math.inf if ratio > UNBOUNDED else ratio


def _best_of_all(away: Matrix, sq: Matrix, h: int) -> Indices:
    sets = _sets(len(away), h)
    means = sets @ away
    moved = np.einsum("ij,ij->i", means, means)
    best = int(np.argmax(moved / np.maximum(sets @ sq, _TINY)))
    return np.flatnonzero(sets[best])


@lru_cache(maxsize=4)
def _sets(count: int, h: int) -> Matrix:
    """One row per set: 1/h for who is in it."""
    sets = list(combinations(range(count), h))
    found = np.zeros((len(sets), count))
    np.put_along_axis(found, np.array(sets), 1.0 / h, axis=1)
    return found


def _improved(away: Matrix, sq: Matrix, h: int) -> Indices:
    """The best of sets that start from the nearest, the farthest, and each row's direction."""
    by_distance = np.argsort(sq, kind="stable")
    starts = [by_distance[:h], by_distance[-h:]]
    starts += [np.argsort(-(away @ row), kind="stable")[:h] for row in away[:: max(1, h // 8)]]
    best, chosen = -1.0, starts[0]
    for start in starts:
        share, found = _climbed(away, sq, start)
        if share > best:
            best, chosen = share, found
    return np.sort(chosen)


def _climbed(away: Matrix, sq: Matrix, chosen: Indices) -> tuple[float, Indices]:
    """A set from which no such step leads on, and its m/q."""
    share = -1.0
    for _ in range(50):
        mean = away[chosen].mean(axis=0)
        new = float(mean @ mean) / max(float(sq[chosen].mean()), _TINY)
        if new <= share * (1 + 1e-12):
            break
        share, kept = new, chosen
        chosen = np.argsort(-(2 * away @ mean - share * sq), kind="stable")[: len(chosen)]
    return share, kept
