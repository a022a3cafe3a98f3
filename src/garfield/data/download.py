"""Fetch a data set from where its authors, or those who host it for them, publish it.

Every file has a known size and SHA-256: what arrives is checked before it takes its
name, so that a file that is there is a file that is right. A second `fetch` gets only
what is still missing. From an archive come the files that are expected, and no other.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, TypeAlias
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from garfield.core.errors import ConfigError, InputError, UnknownName
from garfield.core.files import replacing
from garfield.data.catalogue import DATASETS
from garfield.data.published import DOWNLOADS, Download, PublishedFile
from garfield.data.stored import data_directory

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that have arrived, and all its bytes."""

_CHUNK = 1 << 18


def fetch(
    name: str,
    to: str | os.PathLike[str] | None = None,
    *,
    downloads: Mapping[str, Sequence[Download]] = DOWNLOADS,
    timeout_s: float = 30.0,
    progress: Progress = lambda name, done, size: None,
) -> Path:
    """Put the files of a data set below `to`, where `load` finds them; returns that directory.

    `timeout_s` bounds each wait for the network, not the whole.
    """
    if name in DATASETS and DATASETS[name].ships:
        raise ConfigError(f"{name} comes with the library: there is nothing to fetch.")
    if name not in downloads:
        raise UnknownName("a data set that can be fetched", name, downloads)
    root = data_directory(to)
    for download in downloads[name]:
        if not all(_is_right(root, piece) for piece in download.files):
            _get(download, root, timeout_s, progress)
    return root


def _get(download: Download, root: Path, timeout_s: float, progress: Progress) -> None:
    """Take it from the first address that sends the right bytes."""
    opener, problems = build_opener(_SameScheme), []
    for url in download.urls:
        try:
            with opener.open(url, timeout=timeout_s) as content:
                _write(root, download.file, content, progress)
            break
        except (InputError, OSError, HTTPException) as problem:
            problems.append(f"{url}: {problem}")
    else:
        raise InputError(
            f"{download.file.path} could not be fetched. {'; '.join(problems)}. "
            "Check the network and try again: what has arrived is kept."
        )
    if download.members:
        archive = root / download.file.path
        try:
            _unpack(archive, root, download.members, progress)
        finally:
            archive.unlink()


class _SameScheme(HTTPRedirectHandler):
    """Follows redirects, but never from https to anything less."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme != urlsplit(req.full_url).scheme:
            raise InputError(f"it redirects to {newurl}, which is refused")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _unpack(
    archive: Path, root: Path, members: Mapping[str, PublishedFile], progress: Progress
) -> None:
    """Write the expected members to the paths that we chose: no name in the archive is one."""
    left = dict(members)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.name not in left:
                    continue
                content = tar.extractfile(member) if member.isreg() else None
                if content is None:
                    raise InputError(f"{archive}: {member.name} is not a plain file.")
                _write(root, left.pop(member.name), content, progress)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise InputError(f"{archive} is damaged: {problem}.") from None
    if left:
        raise InputError(f"{archive} lacks {', '.join(left)}.")


def _write(root: Path, piece: PublishedFile, content: IO[bytes], progress: Progress) -> None:
    """Write it under another name until it has proved right: it is there whole, or not at all."""
    path = root / piece.path
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, done = hashlib.sha256(), 0
    with replacing(path) as partial:
        with partial.open("wb") as file:
            while chunk := content.read(min(_CHUNK, piece.size - done + 1)):
                done += len(chunk)
                if done > piece.size:
                    raise InputError(f"{piece.path} should end after {piece.size} bytes")
                file.write(chunk)
                digest.update(chunk)
                progress(piece.path, done, piece.size)
        if done < piece.size or digest.hexdigest() != piece.sha256:
            raise InputError(
                f"{piece.path} should be {piece.size} bytes of sha256 {piece.sha256}, "
                f"got {done} of {digest.hexdigest()}"
            )


def _is_right(root: Path, piece: PublishedFile) -> bool:
    path = root / piece.path
    if not path.is_file() or path.stat().st_size != piece.size:
        return False
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest() == piece.sha256
