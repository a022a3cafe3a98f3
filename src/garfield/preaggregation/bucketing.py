"""Bucketing: average the rows in random groups of s, and aggregate the groups.

Fewer, calmer rows: the variance between buckets is 1/s of that between rows.
At most f of the ⌈n/s⌉ buckets hold a faulty row, so the rule behind must
tolerate f of ⌈n/s⌉. The grouping must be fresh each round and unknown to the
attackers: without a seed it is drawn from the system's entropy.

Karimireddy, He and Jaggi, ICLR 2022.
"""

import numpy as np

from garfield.core.bounds import Seed
from garfield.core.errors import ConfigError
from garfield.kernels.algebra import mixed_sq_dists
from garfield.kernels.rows import Rows
from garfield.preaggregation.stage import stage


def _buckets(n: int, *, s: int = 2, **_: object) -> int:
    if s < 1:
        raise ConfigError(f"bucketing.s must be at least 1, got {s}.")
    return -(-n // s)


@stage("bucketing", rows_after=_buckets)
def bucketing(rows: Rows, *, f: int, s: int = 2, seed: Seed | None = None) -> Rows:
    order = np.random.default_rng(seed).permutation(rows.n)
    mix = np.zeros((_buckets(rows.n, s=s), rows.n))
    for bucket, first in enumerate(range(0, rows.n, s)):
        members = order[first : first + s]
        mix[bucket, members] = 1.0 / len(members)
    return rows.mixed(mix, lambda: mixed_sq_dists(rows.sq_dists(), mix))
