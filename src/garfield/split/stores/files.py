"""A directory as a store: for tests, for one machine, and for a file system that all share.

A server reads files for a tenant only if the tenant's token is in its tokens file, and only
in the directories that stand there; by default in none.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from garfield.core.errors import AccessDenied, ConfigError, ObjectMissing, StoreUnreachable
from garfield.core.files import replacing, write_json
from garfield.split.stores.access import Access
from garfield.split.stores.contract import REQUEST_S, check_name, check_range
from garfield.split.stores.settings import StoreSettings


class FileStore:
    """Objects as files of one directory; what links lead to outside of it is not read."""

    def __init__(self, directory: Path, url: str, token: str | None) -> None:
        self.url = url
        self._directory = directory
        self._token = token

    def get(self, name: str) -> bytes:
        with self._errors(name):
            return self._path(name).read_bytes()

    def get_range(self, name: str, start: int, length: int) -> bytes:
        check_range(start, length)
        with self._errors(name), self._path(name).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def put(self, name: str, data: bytes) -> None:
        with self._errors(name):
            path = self._path(name)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except (FileNotFoundError, NotADirectoryError) as problem:  # not that it is missing
                raise StoreUnreachable(
                    f"{path.parent} cannot be made: {problem.strerror}."
                ) from None
            with replacing(path) as partial:
                partial.write_bytes(data)

    def size(self, name: str) -> int:
        with self._errors(name):
            path = self._path(name)
            if not path.is_file():
                raise FileNotFoundError(path)
            os.close(os.open(path, os.O_RDONLY))  # may it be read?
            return path.stat().st_size

    def names(self, prefix: str = "") -> list[str]:
        with self._errors(prefix):
            if not self._directory.is_dir():
                return []
            found = (
                (Path(folder) / file).relative_to(self._directory).as_posix()
                for folder, _, files in os.walk(self._directory)
                for file in files
                if not (file.startswith(".") and file.endswith(".part"))  # being written
            )
            return sorted(name for name in found if name.startswith(prefix))

    def delete(self, name: str) -> None:
        with self._errors(name):
            self._path(name).unlink()

    def access(
        self,
        names: Sequence[str],
        *,
        writes: Sequence[str] = (),
        endpoint: str | None = None,
        lasts_s: int = REQUEST_S,
    ) -> Access:
        if not self._token:
            raise ConfigError(
                "A server that holds files wants a token. Give file_token, or set "
                "GARFIELD_SPLIT_TOKEN."
            )
        return Access("file", token=self._token)

    def close(self) -> None:
        """Nothing is held open."""

    def _path(self, name: str) -> Path:
        path = self._directory / check_name(name)
        root = self._directory.resolve()
        if not path.resolve().is_relative_to(root):
            raise AccessDenied(f"{name} leads out of {self.url}.")
        return path

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ObjectMissing(f"{self.url} has no object {name}.") from None
        except PermissionError:
            raise AccessDenied(f"{name} in {self.url} is not ours to use.") from None
        except OSError as problem:
            raise StoreUnreachable(f"{name} in {self.url}: {problem}") from None


def open_files(
    directory: str, url: str, access: Access | None, settings: StoreSettings
) -> FileStore:
    """A directory; for a server, once the token was found to reach so far."""
    if access is not None:
        _authorise(Path(directory), url, access, settings)
    return FileStore(Path(directory), url, settings.file_token)


def write_tokens(path: Path, tenants: Mapping[str, Sequence[str]]) -> None:
    """Write a server's tokens file: which token may read which directories under the root.

    Only hashes are written.
    """
    hashed = {_hash(token): list(folders) for token, folders in tenants.items()}
    write_json(path, hashed)
    path.chmod(0o600)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _authorise(directory: Path, url: str, access: Access, settings: StoreSettings) -> None:
    """Raise AccessDenied: 401 for a token nobody knows, 403 for one that does not reach there."""
    if not settings.file_root or not settings.file_tokens:
        raise AccessDenied("This server holds no files for anybody.", status=401)
    root = Path(settings.file_root).resolve()
    folders = _tenants(Path(settings.file_tokens)).get(_hash(access.token))
    if folders is None:
        raise AccessDenied("Nobody here knows this token.", status=401)
    wanted = directory.resolve()
    allowed = [(root / folder).resolve() for folder in folders]
    if not any(wanted.is_relative_to(each) and each.is_relative_to(root) for each in allowed):
        raise AccessDenied(f"This token does not reach {url}.")


def _tenants(path: Path) -> dict[str, list[str]]:
    """The tokens file, read anew each time: a token that was taken out is out."""
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError) as problem:
        raise StoreUnreachable(f"The tokens file cannot be read: {problem}.") from None
    if not isinstance(raw, dict) or not all(
        isinstance(folders, list) and all(isinstance(each, str) for each in folders)
        for folders in raw.values()
    ):
        raise StoreUnreachable("The tokens file must map hashes to lists of directories.")
    return raw
