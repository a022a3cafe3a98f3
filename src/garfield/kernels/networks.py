"""Selection networks: which rows to compare so that the wanted ranks fall in place.

Starts from Batcher's odd-even merge sort (Batcher, 1968) for any n and walks it
backwards, keeping only the steps that a wanted rank depends on. Two kinds of
want are told apart: *exact* ranks (the median), and ranks whose values are
only summed (the middle of a trimmed mean), where a step between two of them
changes nothing. For n = 17 the median keeps 70 of 85 steps, and 16 of those
compute one side only. (Plain Python: setup.py reads this file too.)
"""

from collections.abc import Iterable, Iterator

Network = list[tuple[int, int, int]]  # row i, row j, kind; i < j
BOTH, ONLY_MIN, ONLY_MAX = 0, 1, 2


def batcher(n: int) -> Iterator[tuple[int, int]]:
    """Compare-exchange pairs that sort n values, smallest first."""
    p = 1
    while p < n:
        k = p
        while k >= 1:
            for start in range(k % p, n - k, 2 * k):
                for i in range(start, min(start + k, n - k)):
                    if i // (2 * p) == (i + k) // (2 * p):
                        yield i, i + k
            k //= 2
        p *= 2


def prune(n: int, exact: Iterable[int], summed: Iterable[int] = ()) -> Network:
    """The steps of a sort of n values that these ranks depend on."""
    exact, summed = set(exact), set(summed)
    summed -= exact
    kept = []
    for i, j in reversed(list(batcher(n))):
        i_wanted, j_wanted = i in exact or i in summed, j in exact or j in summed
        if not (i_wanted or j_wanted) or (i in summed and j in summed):
            continue
        kept.append((i, j, BOTH if i_wanted and j_wanted else ONLY_MIN if i_wanted else ONLY_MAX))
        exact |= {i, j}
        summed -= {i, j}
    return kept[::-1]


def sorting(n: int) -> Network:
    return prune(n, range(n))


def median(n: int) -> Network:
    return prune(n, {(n - 1) // 2, n // 2})


def trimmed(n: int, f: int) -> Network:
    """Ranks f .. n-f-1, in any order."""
    return prune(n, (), range(f, n - f))


def near_median(n: int, k: int) -> Network:
    """The median and both ends in order; what every window of k holds, in any order."""
    ends = {*range(n - k), *range(k, n), (n - 1) // 2, n // 2}
    return prune(n, ends, range(n))
