"""A federated training's state in a database, and which of several servers may write it.

    database = open_state_database("runs/g/state.sqlite", run="g")
    with wait_to_lead(database, "server-0", lease_s=10) as primary:
        state = primary.latest()
        attempt = primary.begin(1)
        primary.commit(LearningState(1, tensors, document, devices, choices))

`learning_state` says what is kept, `database` how, `on_sqlite` and `on_postgres` where, and
`primary` is a server's turn: its lease is renewed in the background, and what the
database does not take now is tried again until it does.
"""

from __future__ import annotations

import re
from pathlib import Path

from garfield.core.errors import ConfigError
from garfield.fedgan.state.database import Leader, RoundChoices, StateDatabase, Token
from garfield.fedgan.state.learning_state import LearningState
from garfield.fedgan.state.primary import Primary, round_seed, wait_to_lead

__all__ = [
    "Leader", "LearningState", "Primary", "RoundChoices", "StateDatabase", "Token",
    "open_state_database", "round_seed", "wait_to_lead",
]  # fmt: skip

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
_POSTGRES = ("postgresql", "postgres")


def open_state_database(where: str | Path, run: str) -> StateDatabase:
    """The state of a run: in an SQLite file, or in PostgreSQL by its URL.

    The file and its tables are made if they are not there. SQLite serves the servers of one host.
    """
    if not run:
        raise ConfigError("A run whose state is kept needs a name, got an empty one.")
    scheme = _SCHEME.match(str(where))
    if scheme is None:
        from garfield.fedgan.state.on_sqlite import SqliteBackend

        return StateDatabase(SqliteBackend(Path(where)), run)
    if scheme[1].lower() not in _POSTGRES:
        raise ConfigError(
            f"State is kept in an SQLite file or in PostgreSQL, not in {scheme[1]}. Give a path, "
            "or postgresql://user@host/database"
        )
    from garfield.fedgan.state.on_postgres import PostgresBackend, check_url

    check_url(str(where))
    return StateDatabase(PostgresBackend(str(where)), run)
