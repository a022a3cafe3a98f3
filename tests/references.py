"""Every rule again, slow and obvious, in float64: what the fast ones are held to.

Nothing here is shared with the library, and nothing is clever.
"""

from itertools import combinations, product

import numpy as np


def sq_dist(x, y):
    return float(((x - y) ** 2).sum())


def average(rows, f):
    return rows.mean(axis=0)


def median(rows, f):
    return np.median(rows, axis=0)


def trimmed_mean(rows, f):
    return np.sort(rows, axis=0)[f : len(rows) - f].mean(axis=0)


def mean_near_median(column, k):
    """Take the nearest to the median, k times; of two equally near, the smaller."""
    middle = np.median(column)
    left = sorted(column)
    taken = []
    for _ in range(k):
        nearest = min(left, key=lambda x: (abs(x - middle), x))
        left.remove(nearest)
        taken.append(nearest)
    return np.mean(taken)


def meamed(rows, f):
    return np.array([mean_near_median(column, len(rows) - f) for column in rows.T])


def krum_scores(rows, f):
    scores = []
    for i, x in enumerate(rows):
        dists = sorted(sq_dist(x, y) for j, y in enumerate(rows) if j != i)
        scores.append(sum(dists[: max(1, len(rows) - f - 2)]))
    return np.array(scores)


def krum_order(rows, f):
    totals = [sum(sq_dist(x, y) for y in rows) for x in rows]
    scores = krum_scores(rows, f)
    return sorted(range(len(rows)), key=lambda i: (scores[i], totals[i]))


def krum(rows, f):
    return rows[krum_order(rows, f)[0]]


def multi_krum(rows, f, m=None):
    m = len(rows) - f - 2 if m is None else m
    return rows[krum_order(rows, f)[:m]].mean(axis=0)


def diameter(rows):
    return max((sq_dist(x, y) for x, y in combinations(rows, 2)), default=0.0)


def smallest_diameter(rows, f):
    return min(diameter(rows[list(s)]) for s in combinations(range(len(rows)), len(rows) - f))


def mda(rows, f):
    """Only where the best set is unique."""
    sets = [list(s) for s in combinations(range(len(rows)), len(rows) - f)]
    return rows[min(sets, key=lambda s: diameter(rows[s]))].mean(axis=0)


def bulyan(rows, f, m=1):
    """Of what is left, the row nearest to the mean of the m that Krum scores best, and again."""
    left = list(range(len(rows)))
    picked = []
    for _ in range(len(rows) - 2 * f):
        order = krum_order(rows[left], f)[: min(m, max(1, len(left) - f - 2))]
        centre = rows[left][order].mean(axis=0)
        away = {i: sq_dist(rows[i], centre) for i in left}
        alike = [i for i in left if away[i] <= min(away.values()) + 1e-9]
        best = min(alike, key=lambda i: sum(sq_dist(rows[i], rows[j]) for j in left))
        left.remove(best)
        picked.append(best)
    selected = rows[picked]
    return np.array([mean_near_median(column, len(rows) - 4 * f) for column in selected.T])


def geometric_median(rows, f):
    """Weiszfeld on the vectors themselves, far beyond convergence."""
    z = np.median(rows, axis=0)
    for _ in range(2000):
        away = np.maximum(np.linalg.norm(rows - z, axis=1), 1e-12)
        z = (rows / away[:, None]).sum(axis=0) / (1 / away).sum()
    return z


def centered_clipping(rows, f, reference=None, tau=None, iterations=3):
    z = np.median(rows, axis=0) if reference is None else reference
    tau = np.median(np.linalg.norm(rows - z, axis=1)) if tau is None else tau
    for _ in range(iterations):
        steps = [(x - z) * min(1.0, tau / max(np.linalg.norm(x - z), 1e-300)) for x in rows]
        z = z + np.mean(steps, axis=0)
    return z


def monna(rows, f):
    """Two rows that are each other's farthest have one radius: the one nearer to all is taken."""
    dists = [sorted(sq_dist(x, y) for y in rows) for x in rows]
    k = len(rows) - f
    centre = min(range(len(rows)), key=lambda i: (dists[i][k - 1], sum(dists[i])))
    return monna_around(rows, f, centre)


def monna_around(rows, f, centre):
    k = len(rows) - f
    nearest = sorted(range(len(rows)), key=lambda j: sq_dist(rows[centre], rows[j]))[:k]
    return rows[nearest].mean(axis=0)


def caf(rows, f):
    n = len(rows)
    counts, best, best_spread = np.ones(n), rows.mean(axis=0), np.inf
    while f > 0 and counts.sum() > n - 2 * f:
        mean = counts @ rows / counts.sum()
        centred = rows - mean
        covariance = (counts[:, None] * centred).T @ centred / counts.sum()
        values, vectors = np.linalg.eigh(covariance)
        if values[-1] < best_spread:
            best, best_spread = mean, values[-1]
        projections = (centred @ vectors[:, -1]) ** 2
        counts = counts * (1 - projections / projections[counts > 0].max()).clip(0)
    return best


def dnc(rows, f):
    """Of all coordinates: what a sample of d or more of them comes to."""
    centred = rows - rows.mean(axis=0)
    direction = np.linalg.svd(centred)[2][0]
    return rows[np.argsort((centred @ direction) ** 2)[: len(rows) - f]].mean(axis=0)


def aksel(rows, f):
    to_median = ((rows - np.median(rows, axis=0)) ** 2).sum(axis=1)
    return rows[np.argsort(to_median)[: -(-len(rows) // 2)]].mean(axis=0)


def nnm(rows, f):
    k = len(rows) - f
    nearest = [sorted(range(len(rows)), key=lambda j: sq_dist(x, rows[j]))[:k] for x in rows]
    return np.array([rows[near].mean(axis=0) for near in nearest])


def clipping(rows, f, tau=1.0):
    return np.array([x * min(1.0, tau / np.linalg.norm(x)) for x in rows])


def arc(rows, f):
    lengths = np.linalg.norm(rows, axis=1)
    cut = int(2 * f * (len(rows) - f) / len(rows))
    return clipping(rows, f, tau=sorted(lengths)[len(rows) - cut - 1])


RULES = {
    "average": average,
    "median": median,
    "trimmed-mean": trimmed_mean,
    "meamed": meamed,
    "krum": krum,
    "multi-krum": multi_krum,
    "mda": mda,
    "bulyan": bulyan,
    "geometric-median": geometric_median,
    "centered-clipping": centered_clipping,
    "monna": monna,
    "caf": caf,
    "dnc": dnc,
    "aksel": aksel,
}
STAGES = {"nnm": nnm, "clipping": clipping, "arc": arc}


def present_column(name, column, f):
    """A coordinate-wise rule on the values of one coordinate that arrived."""
    if name == "median":
        return np.median(column)
    if name == "trimmed-mean":
        return np.sort(column)[f : len(column) - f].mean()
    return mean_near_median(column, len(column) - f)


def is_sorting_network(steps, n):
    """By the 0-1 principle: it sorts all numbers if it sorts all zeros and ones."""
    for bits in product((0, 1), repeat=n):
        x = list(bits)
        for i, j, _ in steps:
            x[i], x[j] = min(x[i], x[j]), max(x[i], x[j])
        if x != sorted(x):
            return False
    return True
