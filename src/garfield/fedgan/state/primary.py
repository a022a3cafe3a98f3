"""A server's turn as the primary: its lease is kept alive, and no round is lost on the way.

A thread renews the lease five times in its duration, by a connection of its own. What the
database does not take now is tried again for `patience_s`; the round that was computed
waits in memory meanwhile. Whether somebody else leads is for the database to say, at every commit:
until then a primary that cannot reach it goes on, for its work counts if nobody took over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import TypeVar

from garfield.core.bounds import Within, check_number
from garfield.core.errors import LeaseLost, RunError, StateUnreachable
from garfield.fedgan.state.database import Leader, RoundChoices, StateDatabase, Token
from garfield.fedgan.state.learning_state import LearningState

T = TypeVar("T")

_log = logging.getLogger(__name__)
_SHORTEST_PAUSE_S, _FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.05, 1.0
_RENEWALS = 5
"""In the duration of a lease."""


def round_seed(seed: int, round_: int, attempt: int) -> int:
    """The seed of all randomness in one attempt at a round: 63 bits, the same for the same three.

    The first attempt of a run that was never interrupted is number 0, so it can be repeated; a
    round that ended its server is drawn anew.
    """
    text = f"{seed} {round_} {attempt}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") >> 1


def wait_to_lead(
    database: StateDatabase,
    name: str,
    *,
    lease_s: float,
    patience_s: float = 300.0,
    ended: threading.Event | None = None,
) -> Primary | None:
    """Wait, however long, until this server is the primary; None if `ended` was set meanwhile.

    StateUnreachable if the database does not answer for `patience_s`.
    """
    check_number("lease_s", lease_s, Within(0, above=True))
    check_number("patience_s", patience_s, Within(0))
    ended = threading.Event() if ended is None else ended
    while not ended.is_set():
        token = patiently(lambda: database.acquire(name, lease_s), patience_s, ended)
        if token is not None:
            _log.info("%s is the primary of %s, token %d.", name, database.run, token.number)
            return Primary(database, token, patience_s=patience_s)
        leader = patiently(database.leader, patience_s, ended)
        ended.wait(_next_look_s(lease_s, leader))
    return None


def _next_look_s(lease_s: float, leader: Leader | None) -> float:
    """When to try again: often enough to notice a lease that was ended, and when this one ends."""
    left_s = 0.0 if leader is None else leader.left_s
    return min(lease_s / _RENEWALS, _LONGEST_PAUSE_S, max(left_s, _SHORTEST_PAUSE_S))


class Primary:
    """A server that leads. Use as a context: leaving it ends the lease, and others take over."""

    def __init__(self, database: StateDatabase, token: Token, *, patience_s: float = 300.0) -> None:
        self._database, self.token, self._patience_s = database, token, patience_s
        self._ended = threading.Event()
        self._lost: LeaseLost | None = None
        self._thread = threading.Thread(
            target=self._keep_lease, daemon=True, name=f"garfield-lease-{token.holder}"
        )
        self._thread.start()

    def __enter__(self) -> Primary:
        return self

    def __exit__(self, kind: object, problem: BaseException | None, *_: object) -> None:
        self.end(failed=isinstance(problem, Exception) and not isinstance(problem, LeaseLost))

    def end(self, *, failed: bool = False) -> None:
        """End the lease at once, if the database can be reached; else it runs out.

        A server that failed has tried the round that it had begun, as one that was killed has.
        """
        self._ended.set()
        self._thread.join()
        try:
            self._database.release(self.token, failed=failed)
        except StateUnreachable as problem:
            _log.warning("The lease of %s runs out by itself: %s", self.token.holder, problem)

    def check(self) -> None:
        """LeaseLost if another server is known to lead: there is no use in going on."""
        if self._lost is not None:
            raise self._lost

    def latest(self) -> LearningState | None:
        """What was committed last, by whomever."""
        return self._patiently(self._database.latest)

    def history(self, after: int = 0) -> Iterator[RoundChoices]:
        """Who took part in each round after that one."""
        return iter(self._patiently(lambda: list(self._database.history(after))))

    def begin(self, round_: int) -> int:
        """Note that a round begins; how often it was begun before in vain (see `round_seed`)."""
        return self._patiently(lambda: self._database.begin_round(self.token, round_))

    def commit(self, state: LearningState) -> None:
        """Keep the state after a round, or raise LeaseLost: then it is another server's turn."""
        self._patiently(lambda: self._database.commit(self.token, state))

    def _patiently(self, call: Callable[[], T]) -> T:
        self.check()
        return patiently(call, self._patience_s, self._ended)

    def _keep_lease(self) -> None:
        renewing: StateDatabase | None = None
        while not self._ended.wait(self.token.lease_s / _RENEWALS):
            try:
                renewing = self._database.another() if renewing is None else renewing
                renewing.renew(self.token)
            except LeaseLost as lost:
                self._lost = lost
                break
            except RunError as problem:  # the next commit tells
                _log.debug("The lease of %s is not renewed: %s", self.token.holder, problem)
        if renewing is not None:
            renewing.close()


def patiently(call: Callable[[], T], patience_s: float, ended: threading.Event) -> T:
    """Do what needs the database; again and again for so long if it does not answer."""
    deadline = time.monotonic() + patience_s
    pause_s = _FIRST_PAUSE_S
    told = False
    while True:
        try:
            result = call()
        except StateUnreachable as problem:
            if ended.is_set() or time.monotonic() >= deadline:
                raise StateUnreachable(
                    f"{problem} It was tried for {patience_s:g} s. What was committed before is "
                    "kept: resume when the database is back."
                ) from None
            if not told:
                _log.warning("%s Waiting up to %g s for it.", problem, patience_s)
                told = True
            ended.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        else:
            if told:
                _log.warning("The database answers again.")
            return result
