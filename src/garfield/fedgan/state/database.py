"""Where a federated training's state is kept: one primary commits it, round after round.

Of several servers one leads, by a lease that runs out by the *database's* clock. Whoever takes
it gets a token, a number that no other lease of this run has had and that only grows. A commit is
one transaction that looks at the newest token and writes, while nobody else can change it: a
server that was paused or cut off, whose lease ran out and was taken by another, is refused
(a fencing token; Burrows, "The Chubby lock service", OSDI 2006, section 2.4). A lease that ran
out and that nobody took still commits: there is no second primary then, and nothing is lost.

    leases     one row: the newest token, who holds it, and until when
    states     the last two, each with the token that wrote it
    devices    what devices declared, as of the states that are kept
    choices    who took part in each round: only ever appended
    attempts   how often a round was begun that is not committed yet

The transaction is done whole or not at all, also if its process is killed in the middle of it.
`backend.py` says what a database must offer, `on_sqlite.py` and `on_postgres.py` offer it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from garfield.core.bounds import Within, check_number
from garfield.core.errors import LeaseLost, RunError
from garfield.fedgan.state.backend import Backend, Sql
from garfield.fedgan.state.learning_state import LearningState, PackedState, packed, unpacked

_log = logging.getLogger(__name__)

KEPT = 2
"""States that are kept: the newest, and the one before it."""
MOST_TRIES = 8
"""So often a round that ends its server is begun."""
_PAGE = 64  # rounds of history that are read at once


@dataclass(frozen=True)
class Token:
    """The right to commit, until another server has a newer one."""

    number: int
    """Devices refuse a server whose number is below the largest that they have seen."""
    holder: str
    lease_s: float


@dataclass(frozen=True)
class Leader:
    """Who has the lease."""

    name: str
    token: int
    left_s: float
    """How long it still holds, by the database's clock; negative once it has run out."""


@dataclass(frozen=True)
class RoundChoices:
    """Who took part in a round."""

    round: int
    token: int
    choices: Any


class StateDatabase:
    """The state of one run. Threads may share it; `StateUnreachable` may come of every method."""

    def __init__(self, backend: Backend, run: str) -> None:
        self._backend = backend
        self.run = run

    @property
    def serves_one_host(self) -> bool:
        """Whether all servers must be on the host that has the file."""
        return self._backend.serves_one_host

    def another(self) -> StateDatabase:
        """The same state by a connection of its own, so that neither waits for the other's."""
        return StateDatabase(self._backend.another(), self.run)

    def close(self) -> None:
        self._backend.close()

    # -- who leads ------------------------------------------------------------------

    def acquire(self, name: str, lease_s: float) -> Token | None:
        """Become the primary for so long; None if somebody is.

        A name is no proof: a server that was restarted waits for its own lease as others do.
        """
        check_number("lease_s", lease_s, Within(0, above=True))
        with self._backend.writing() as sql:
            sql.run(
                "INSERT INTO fedgan_leases VALUES (?, 0, '', 0, 0) ON CONFLICT DO NOTHING", self.run
            )
            number, _, left_s = self._lease(sql)
            if left_s > 0:
                return None
            sql.run(
                "UPDATE fedgan_leases SET token = ?, holder = ?, lease_s = ?, "
                f"ends_s = {self._backend.clock} + ? WHERE run = ?",
                number + 1, name, lease_s, lease_s, self.run,
            )  # fmt: skip
        return Token(number + 1, name, lease_s)

    def renew(self, token: Token) -> None:
        """Hold the lease for its time again, from now on; LeaseLost if another server has it."""
        with self._backend.writing() as sql:
            self._fence(sql, token, "its lease is not renewed")
            self._extend(sql, token)

    def release(self, token: Token, *, failed: bool = False) -> None:
        """End the lease, if it is still ours: another server need not wait for it to run out.

        A round that was begun counts as never begun, unless the server has failed at it.
        """
        with self._backend.writing() as sql:
            number, holder, _ = self._lease(sql)
            if (number, holder) == (token.number, token.holder):
                sql.run(
                    f"UPDATE fedgan_leases SET ends_s = {self._backend.clock} WHERE run = ?",
                    self.run,
                )
                if not failed:
                    sql.run(
                        "UPDATE fedgan_attempts SET begun = begun - 1, token = 0 "
                        "WHERE run = ? AND token = ?",
                        self.run, token.number,
                    )  # fmt: skip

    def leader(self) -> Leader | None:
        """Who has, or had, the lease; None before anybody did."""
        with self._backend.reading() as sql:
            found = sql.rows(
                f"SELECT holder, token, ends_s - {self._backend.clock} FROM fedgan_leases "
                "WHERE run = ? AND token > 0",
                self.run,
            )
        return Leader(*found[0]) if found else None

    # -- rounds ---------------------------------------------------------------------

    def begin_round(self, token: Token, round_: int, *, at_most: int = MOST_TRIES) -> int:
        """Note that a round begins; how often it was begun before, by whomever, in vain.

        That number belongs in the round's seed (`primary.round_seed`): a round that ends its
        server is another one when it is tried again, and after `at_most` times a RunError.
        """
        with self._backend.writing() as sql:
            self._fence(sql, token, f"round {round_} does not begin")
            self._extend(sql, token)
            found = sql.rows(
                "SELECT begun FROM fedgan_attempts WHERE run = ? AND round = ?", self.run, round_
            )
            before = int(found[0][0]) if found else 0
            if before >= at_most:
                raise RunError(
                    f"Round {round_} of {self.run} was begun {before} times and never committed: "
                    "each time its server ended. Look at what it said last, and resume then."
                )
            sql.run("DELETE FROM fedgan_attempts WHERE run = ?", self.run)
            sql.run(
                "INSERT INTO fedgan_attempts VALUES (?, ?, ?, ?)",
                self.run, round_, before + 1, token.number,
            )  # fmt: skip
        return before

    def try_again(self) -> None:
        """Begin a round anew that was begun so often that it was given up: its user says so."""
        with self._backend.writing() as sql:
            sql.run(
                "DELETE FROM fedgan_attempts WHERE run = ? AND begun >= ?", self.run, MOST_TRIES
            )

    def commit(self, token: Token, state: LearningState) -> None:
        """Keep the state after a round; LeaseLost, and nothing written, if another server leads.

        Rounds follow each other without a gap. What was committed already is not written again:
        after an error that leaves open what became of a commit, the same one may be repeated.
        """
        new = packed(state)
        with self._backend.writing() as sql:
            # the long value first, while nobody waits for us: the token is looked at afterwards
            written = sql.run(
                "INSERT INTO fedgan_states VALUES (?, ?, ?, ?, ?, 0, ?) ON CONFLICT DO NOTHING",
                self.run, new.round, token.number, new.tensors, new.document, new.digest,
            )  # fmt: skip
            self._fence(sql, token, f"round {new.round} is not committed")
            self._extend(sql, token)
            if not written:
                self._check_same(sql, token, new)
                return
            self._check_follows(sql, token, new.round)
            self._keep_devices(sql, token, new)
            self._append_choices(sql, token, new)
            self._prune(sql)

    def latest(self) -> LearningState | None:
        """What was committed last; None before anything was.

        A state that is not what was written any more is passed over for the one before it.
        """
        damaged = []
        with self._backend.reading() as sql:
            for round_, token in self._kept(sql):
                kept, digest = self._read(sql, round_, token)
                if kept is not None and kept.digest == digest:
                    return unpacked(kept)
                damaged.append(round_)
                _log.warning("The state of round %d of %s is damaged.", round_, self.run)
        if damaged:
            raise RunError(
                f"All states of {self.run} that are kept are damaged: rounds {damaged}. "
                "Restore the database from a backup."
            )
        return None

    def history(self, after: int = 0) -> Iterator[RoundChoices]:
        """Who took part in each round after that one, in the order of the rounds' commits."""
        number = 0
        while True:
            with self._backend.reading() as sql:
                found = sql.rows(
                    "SELECT number, round, token, choices FROM fedgan_choices WHERE run = ? "
                    "AND number > ? AND round > ? ORDER BY number LIMIT ?",
                    self.run, number, after, _PAGE,
                )  # fmt: skip
            for _, round_, token, choices in found:
                yield RoundChoices(round_, token, json.loads(choices))
            if len(found) < _PAGE:
                return
            number = found[-1][0]

    # -- parts of a transaction -----------------------------------------------------

    def _lease(self, sql: Sql) -> tuple[int, str, float]:
        """The newest token, its holder, and how long it still holds; kept so until we are done."""
        found = sql.rows(
            "SELECT token, holder, ends_s FROM fedgan_leases WHERE run = ?" + self._backend.lock,
            self.run,
        )
        # asked for after the lock: we may have waited for it
        [(now_s,)] = sql.rows(f"SELECT {self._backend.clock}")
        if not found:
            return 0, "", 0.0
        [(number, holder, ends_s)] = found
        return int(number), str(holder), float(ends_s) - float(now_s)

    def _fence(self, sql: Sql, token: Token, so: str) -> None:
        number, holder, _ = self._lease(sql)
        if (number, holder) != (token.number, token.holder):
            raise LeaseLost(
                f"{token.holder} has token {token.number} of {self.run}, and {holder or 'nobody'} "
                f"has taken over with token {number}: {so}."
            )

    def _extend(self, sql: Sql, token: Token) -> None:
        sql.run(
            f"UPDATE fedgan_leases SET ends_s = {self._backend.clock} + ? WHERE run = ?",
            token.lease_s, self.run,
        )  # fmt: skip

    def _check_same(self, sql: Sql, token: Token, new: PackedState) -> None:
        found = sql.rows(
            "SELECT digest FROM fedgan_states WHERE run = ? AND round = ? AND token = ?",
            self.run, new.round, token.number,
        )  # fmt: skip
        if found[0][0] != new.digest:
            raise RunError(f"Round {new.round} of {self.run} was committed already, differently.")

    def _check_follows(self, sql: Sql, token: Token, round_: int) -> None:
        """A state follows the newest one; in the place of a damaged one it may stand, too."""
        for other, by in self._kept(sql):
            if (other, by) == (round_, token.number):
                continue
            if other == round_ and not self._is_whole(sql, other, by):
                sql.run(
                    "DELETE FROM fedgan_states WHERE run = ? AND round = ? AND token = ?",
                    self.run, other, by,
                )  # fmt: skip
                continue
            if other != round_ - 1:
                raise RunError(
                    f"Round {round_} of {self.run} cannot follow round {other}, which was "
                    f"committed last. Load the latest state, and go on from there."
                )
            return

    def _keep_devices(self, sql: Sql, token: Token, new: PackedState) -> None:
        """What devices declared, unless it is what they had declared before."""
        known = sql.rows(
            "SELECT number, document FROM fedgan_devices WHERE run = ? "
            "ORDER BY number DESC LIMIT 1", self.run,
        )  # fmt: skip
        number = int(known[0][0]) if known else 0
        if not known or known[0][1] != new.devices:
            number += 1
            sql.run("INSERT INTO fedgan_devices VALUES (?, ?, ?)", self.run, number, new.devices)
        sql.run(
            "UPDATE fedgan_states SET devices = ? WHERE run = ? AND round = ? AND token = ?",
            number, self.run, new.round, token.number,
        )  # fmt: skip

    def _append_choices(self, sql: Sql, token: Token, new: PackedState) -> None:
        [(last,)] = sql.rows(
            "SELECT COALESCE(MAX(number), 0) FROM fedgan_choices WHERE run = ?", self.run
        )
        sql.run(
            "INSERT INTO fedgan_choices VALUES (?, ?, ?, ?, ?)",
            self.run, int(last) + 1, new.round, token.number, new.choices,
        )  # fmt: skip

    def _prune(self, sql: Sql) -> None:
        """Forget older states, and what only they refer to."""
        for round_, token in self._kept(sql)[KEPT:]:
            sql.run(
                "DELETE FROM fedgan_states WHERE run = ? AND round = ? AND token = ?",
                self.run, round_, token,
            )  # fmt: skip
        sql.run(
            "DELETE FROM fedgan_devices WHERE run = ? AND number < "
            "(SELECT MIN(devices) FROM fedgan_states WHERE run = ?)",
            self.run, self.run,
        )  # fmt: skip
        sql.run("DELETE FROM fedgan_attempts WHERE run = ?", self.run)

    # -- reading --------------------------------------------------------------------

    def _kept(self, sql: Sql) -> list[tuple[int, int]]:
        """Round and token of the states that are there, the newest first."""
        found = sql.rows(
            "SELECT round, token FROM fedgan_states WHERE run = ? ORDER BY round DESC, token DESC",
            self.run,
        )
        return [(int(round_), int(token)) for round_, token in found]

    def _read(self, sql: Sql, round_: int, token: int) -> tuple[PackedState | None, str]:
        """A state as it is kept, and the digest that it was written with."""
        found = sql.rows(
            "SELECT tensors, s.document, d.document, digest FROM fedgan_states s "
            "JOIN fedgan_devices d ON d.run = s.run AND d.number = s.devices "
            "WHERE s.run = ? AND round = ? AND token = ?",
            self.run, round_, token,
        )  # fmt: skip
        if not found:
            return None, ""
        [(tensors, document, devices, digest)] = found
        return PackedState(round_, bytes(tensors), document, devices, "null"), digest

    def _is_whole(self, sql: Sql, round_: int, token: int) -> bool:
        kept, digest = self._read(sql, round_, token)
        return kept is not None and kept.digest == digest
