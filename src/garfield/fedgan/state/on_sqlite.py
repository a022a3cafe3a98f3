"""A training's state in an SQLite file: the default, for servers that are all on one host.

SQLite keeps writers apart by locks on the file and by memory that they share, which other hosts
do not see: on a network's file system two servers could both commit. So such a path is refused,
and PostgreSQL named instead.

A process that is frozen in the middle of a write keeps the others from writing until it goes on
or is killed, for there is nobody who could end its transaction. They find the database
unreachable meanwhile, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from garfield.core.errors import ConfigError, StateUnreachable
from garfield.fedgan.state.backend import TABLES
from garfield.runs.sqlite_file import SqliteFile

_MOUNTS = Path("/proc/self/mounts")
_NETWORKED = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "glusterfs", "9p", "afs", "gpfs",
     "beegfs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse"}
)  # fmt: skip


class SqliteBackend:
    """One connection to a file."""

    serves_one_host = True
    # days since noon of 4714 BC, of which 2440587.5 are before 1970: every version of SQLite has it
    clock = "((julianday('now') - 2440587.5) * 86400.0)"
    lock = ""  # a transaction that writes has the file for itself

    def __init__(self, path: Path) -> None:
        system = network_file_system(path, _MOUNTS.read_text() if _MOUNTS.exists() else "")
        if system is not None:
            raise ConfigError(
                f"{path} is on a file system of a network ({system}), where SQLite's locks do not "
                "hold: it serves the servers of one host. Give a path on a disk of this host, or "
                "PostgreSQL's address: postgresql://user@host/database"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise ConfigError(
                f"{path.parent} cannot be written to: {problem.strerror}. Give the state another "
                "path, or PostgreSQL's address."
            ) from None
        self._path = path
        tables = TABLES.replace("BYTEA", "BLOB")
        self._file = SqliteFile(path, tables, "a training's state", unreachable=StateUnreachable)

    @contextmanager
    def reading(self) -> Iterator[_Transaction]:
        with self._file.reading() as connection:
            yield _Transaction(connection)

    @contextmanager
    def writing(self) -> Iterator[_Transaction]:
        with self._file.writing() as connection:
            yield _Transaction(connection)

    def another(self) -> SqliteBackend:
        return SqliteBackend(self._path)

    def close(self) -> None:
        self._file.close()


class _Transaction:
    """What has begun on a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, statement: str, *values: Any) -> int:
        return self._connection.execute(statement, values).rowcount

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()


def network_file_system(path: Path, mounts: str) -> str | None:
    """The kind of file system that a path is on, if other hosts may use it too.

    `mounts` is what the kernel lists: device, place, kind, …; of nested places the last counts.

    >>> network_file_system(Path("/data/run/s.db"), "/dev/sda / ext4 rw 0 0\\nh:/x /data nfs4 rw")
    'nfs4'
    """
    found = ("", "")
    resolved = path.resolve()
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        place = fields[1].replace("\\040", " ")
        if resolved.is_relative_to(place) and len(place) >= len(found[0]):
            found = place, fields[2]
    return found[1] if found[1] in _NETWORKED else None
