"""What a database must offer so that a training's state can be kept in it.

The statements are the same for all of them, with ? for values; what differs is how a
transaction begins, how its clock is read, and how a row is kept from others until it ends.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

TABLES = """
CREATE TABLE IF NOT EXISTS fedgan_leases (
    run TEXT PRIMARY KEY, token BIGINT NOT NULL, holder TEXT NOT NULL,
    lease_s DOUBLE PRECISION NOT NULL, ends_s DOUBLE PRECISION NOT NULL
);
CREATE TABLE IF NOT EXISTS fedgan_states (
    run TEXT NOT NULL, round BIGINT NOT NULL, token BIGINT NOT NULL, tensors BYTEA NOT NULL,
    document TEXT NOT NULL, devices BIGINT NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (run, round, token)
);
CREATE TABLE IF NOT EXISTS fedgan_devices (
    run TEXT NOT NULL, number BIGINT NOT NULL, document TEXT NOT NULL, PRIMARY KEY (run, number)
);
CREATE TABLE IF NOT EXISTS fedgan_choices (
    run TEXT NOT NULL, number BIGINT NOT NULL, round BIGINT NOT NULL, token BIGINT NOT NULL,
    choices TEXT NOT NULL, PRIMARY KEY (run, number)
);
CREATE TABLE IF NOT EXISTS fedgan_attempts (
    run TEXT NOT NULL, round BIGINT NOT NULL, begun BIGINT NOT NULL, token BIGINT NOT NULL,
    PRIMARY KEY (run, round)
);
"""
"""As PostgreSQL spells it."""


class Sql(Protocol):
    """A transaction that has begun."""

    def run(self, statement: str, *values: Any) -> int:
        """Change something; how many rows were."""

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Ask for something."""


class Backend(Protocol):
    """One connection to a database that has the tables."""

    @property
    def serves_one_host(self) -> bool:
        """Whether only processes of one host can use it together."""

    @property
    def clock(self) -> str:
        """An expression for the database's own time, in seconds."""

    @property
    def lock(self) -> str:
        """What a SELECT ends with whose row nobody else may change before the transaction ends."""

    def reading(self) -> AbstractContextManager[Sql]:
        """A transaction that changes nothing."""

    def writing(self) -> AbstractContextManager[Sql]:
        """A transaction that is done whole or not at all."""

    def another(self) -> Backend:
        """One more connection to the same database."""

    def close(self) -> None:
        """Free everything."""
