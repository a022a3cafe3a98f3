"""What a run bears besides lies: silence, laggards, and staying together.

A rule's bound, n ≥ needs(f), is about lies. Where nobody is trusted it takes more nodes to bear
other things as well; a run that has fewer starts all the same, and says what it cannot bear:

    silence     n ≥ needs(f) + f       f liars may say nothing, and the others still go on
    laggards    n ≥ needs(f) + f + 1   of servers or peers: one that fell behind is taken back
                                       though f liars say nothing (of workers: needs(f) + f)
    together    2q > n + 3f            and models joined by the trimmed mean: the spread Δ of honest
                                       models obeys Δ′ ≤ ρ (Δ + γG), ρ = (n + f − q) / (q − 2f) < 1;
                                       n ≥ 3f + 1 where all are heard, 5f + 1 at q = n − f

The last is ours: each kept mean differs between two honest nodes by what the q rows that they
heard differ in. The median stays inside what honest nodes sent, and does not contract.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from garfield.core.errors import BoundError
from garfield.gars import Rule

CONTRACTS = "trimmed-mean"


@dataclass(frozen=True)
class Join:
    """One kind of vectors that nodes join, none of whom trusts another."""

    who: str
    """Who sends them: workers, servers or nodes."""
    rule: Rule
    n: int
    f: int
    q: int
    """How many are waited for: all n, or fewer in an asynchronous run."""

    @property
    def synchronous(self) -> bool:
        return self.q == self.n

    @property
    def least(self) -> int:
        """The fewest rows that are ever joined."""
        return max(self.rule.needs(self.f), self.n - self.f) if self.synchronous else self.q

    def check(self) -> None:
        """Raise BoundError or ConfigError for any number of rows that can occur."""
        self.rule.check_all(self.q, self.f, least=min(self.least, self.q))

    def silent(self) -> int:
        """How many may say nothing, and the others still go on."""
        return min(self.f, self.n - self.rule.needs(self.f))

    def keeps_together(self) -> bool:
        """Whether joining brings honest models closer, whatever liars say to whom."""
        return self.rule.name == CONTRACTS and 2 * self.q > self.n + 3 * self.f


def halves_meet(n: int, f: int, q: int) -> None:
    """Raise BoundError where two honest halves could each be enough, and go on apart for ever."""
    least = (n + f) // 2 + 1
    if q < least:
        raise BoundError(
            f"Of n={n} servers with f={f} faulty, a quorum of {q} models lets two halves train "
            f"apart for ever: wait for {least} or more."
        )


def cautions(gradients: Join, models: Join) -> Iterator[str]:
    """What this run cannot bear, a line each, with the number of nodes that could."""
    for join in (gradients, models) if gradients.who != models.who else (models,):
        needs, f = join.rule.needs(join.f), join.f
        if join.synchronous and join.silent() < f:
            few = f"only {join.silent()} that say nothing" if join.silent() else "no silent one"
            yield (
                f"{join.n} {join.who} bear {f} that lie, and {few}: the run then stops. "
                f"{needs + f} {join.who} would bear both."
            )
    needs, f = models.rule.needs(models.f), models.f
    if f and models.n < needs + f + 1:
        yield (
            f"Of {models.n} {models.who}, one that falls behind or restarts is taken back only "
            f"while all others answer. {needs + f + 1} {models.who} would do it though {f} do not."
        )
    if f and not models.keeps_together():
        least = 3 * f + 1 if models.synchronous else 5 * f + 1
        yield (
            f"Honest {models.who} may be driven apart by ones that tell each another lie. "
            f"--model-gar {CONTRACTS} and {least} {models.who} would keep them together."
        )
