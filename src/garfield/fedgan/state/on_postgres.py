"""A training's state in PostgreSQL: for servers on several hosts. The only file with psycopg.

A connection is opened when it is first needed and again when it broke. The server ends a
transaction whose client says nothing any more (`_IDLE_S`), so a primary that is frozen in the
middle of a commit holds nobody up; and whatever takes longer than `call_s` is ended from here
by closing the connection, for a server that is frozen itself would never say so.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from garfield.core.errors import ConfigError, MissingDependency, RunError, StateUnreachable
from garfield.fedgan.state.backend import TABLES

if TYPE_CHECKING:
    import psycopg

CALL_S = 60.0
"""How long a transaction may take, from its beginning to its end."""
_CONNECT_S = 5
_LOCK_S = 5
_IDLE_S = 5
_SESSION = f"""
SET lock_timeout = '{_LOCK_S}s';
SET idle_in_transaction_session_timeout = '{_IDLE_S}s';
SET synchronous_commit = on;
SET client_min_messages = warning;
"""
_MAKING_TABLES = 0x6761_7266
"""Our advisory lock: two who make the same table at once get in each other's way."""
_STATES_ARE_NOISE = "ALTER TABLE fedgan_states ALTER COLUMN tensors SET STORAGE EXTERNAL"


class PostgresBackend:
    """One connection to a server."""

    serves_one_host = False
    clock = "extract(epoch FROM clock_timestamp())::float8"  # now() is when the transaction began
    lock = " FOR UPDATE"

    def __init__(self, url: str, *, call_s: float = CALL_S) -> None:
        self._url, self._call_s = url, call_s
        self._named = without_password(url)
        self._lock = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None
        self._closed = False
        with self.writing() as sql:
            sql.rows("SELECT pg_advisory_xact_lock(?)", _MAKING_TABLES)
            if not sql.rows("SELECT to_regclass('fedgan_attempts')")[0][0]:
                sql.run(TABLES)
                sql.run(_STATES_ARE_NOISE)  # floats do not get shorter

    @contextmanager
    def reading(self) -> Iterator[_Transaction]:
        with self.writing() as sql:
            sql.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")  # of one moment
            yield sql

    @contextmanager
    def writing(self) -> Iterator[_Transaction]:
        import psycopg

        with self._lock:
            try:
                connection = self._connected()
                with self._ended_in_time(connection), connection.transaction():
                    yield _Transaction(connection)
            except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as why:
                self._disconnect()
                raise StateUnreachable(f"{self._named} cannot be used: {_plain(why)}.") from None
            except psycopg.Error as why:
                raise RunError(f"{self._named} refuses a statement: {_plain(why)}.") from None

    def another(self) -> PostgresBackend:
        return PostgresBackend(self._url, call_s=self._call_s)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._closed:
            raise StateUnreachable(f"{self._named} cannot be used: it was closed.")
        if self._connection is None or self._connection.closed:
            self._connection = _connect(self._url)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def _ended_in_time(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        timer = threading.Timer(self._call_s, _cut, [connection])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class _Transaction:
    """What has begun on a connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def run(self, statement: str, *values: Any) -> int:
        return self._executed(statement, values).rowcount

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._executed(statement, values).fetchall()

    def _executed(self, statement: str, values: tuple[Any, ...]) -> psycopg.Cursor[Any]:
        spelled: Any = statement.replace("?", "%s")
        # binary: a state is not written out as text, digit by digit
        return self._connection.cursor(binary=bool(values)).execute(spelled, values or None)


def check_url(url: str) -> None:
    """Refuse what is no address of a PostgreSQL database."""
    try:
        from psycopg import ProgrammingError, conninfo
    except ImportError:
        raise MissingDependency(
            "State in PostgreSQL needs psycopg, which is not installed. "
            "Install it with: pip install 'garfield-ml[fedgan-postgres]'"
        ) from None
    try:
        conninfo.conninfo_to_dict(url)
    except ProgrammingError:  # what it says may quote the password
        raise ConfigError(
            f"{without_password(url)} is no address of a database. "
            "Write it like postgresql://user@host:5432/database"
        ) from None


def without_password(url: str) -> str:
    """An address as it may be shown.

    >>> without_password("postgresql://me:secret@db:5432/run")
    'postgresql://me@db:5432/run'
    """
    scheme, _, rest = url.partition("?")[0].partition("://")
    who, at, place = rest.rpartition("@")
    return f"{scheme}://{who.partition(':')[0]}{at}{place}"


def _connect(url: str) -> psycopg.Connection[Any]:
    import psycopg

    connection = psycopg.connect(
        url, autocommit=True, connect_timeout=_CONNECT_S, application_name="garfield",
        client_encoding="utf8",  # or a database without an encoding would give us bytes for text
        keepalives_idle=10, keepalives_interval=5, keepalives_count=3,
    )  # fmt: skip
    try:
        connection.execute(_SESSION)
    except BaseException:
        connection.close()
        raise
    return connection


def _cut(connection: psycopg.Connection[Any]) -> None:
    """End the connection under a call that takes too long: it fails then."""
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as found:
        found.shutdown(socket.SHUT_RDWR)


def _plain(problem: Exception) -> str:
    """The first line of what the library says, which may have many."""
    lines = str(problem).strip().splitlines()
    return (lines[0] if lines else type(problem).__name__).rstrip(".: ")
