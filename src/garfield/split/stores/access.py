"""What a client hands to a server so that it reads on the client's behalf, and no more.

    swift   a token, and the account it is for. The server sends it to its own Swift alone, and
            Swift decides what it may read.
    s3      presigned GETs of the very objects that a request names. The server sends them to
            its own endpoint alone; keys never leave the client.
    file    a tenant's token, which the server looks up in a file of hashes.

It travels as one header, so that a request's body may be logged; printing an `Access` shows
no secret. A server never reads with rights of its own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from garfield.core.errors import AccessDenied, ConfigError
from garfield.core.files import as_json

MAX_HEADER = 16 << 10
KINDS = ("swift", "s3", "file")
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")
_ACCOUNT = re.compile(r"/v1(?:\.0)?/[A-Za-z0-9_:~-][A-Za-z0-9_.:~-]{0,255}")
"""Of an account there is one spelling: no escapes, which Swift would take back, and no dots in
front, which are left out on the way there."""


@dataclass(frozen=True)
class Access:
    """Rights to read some objects, and perhaps to write some."""

    kind: str
    """swift, s3, or file."""
    token: str = field(default="", repr=False)
    """Of Swift, or of a tenant of files."""
    account: str = ""
    """Path of an account at Swift: /v1/AUTH_name."""
    reads: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Presigned GETs by the object's name, as the URL of the data set has it."""
    writes: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Presigned PUTs likewise."""

    @classmethod
    def for_swift_token(cls, token: str, storage_url: str) -> Access:
        """Rights of a token, in the account that a storage URL ends with."""
        return cls("swift", token=token, account=unquote(urlsplit(storage_url).path).rstrip("/"))

    def tenant(self, name: str) -> str:
        """A digest of whose rights these are, as far as they reach this object.

        It says the truth once the store has let them read it: anybody can write anything here.
        """
        whose = self.token
        if self.kind == "swift":
            # not the token: there are as many as somebody cares to ask for; nor /v1.0, which is /v1
            whose = self.account.rpartition("/")[2]
        elif self.kind == "s3":
            signed = parse_qs(urlsplit(self.reads.get(name, "")).query)
            credential = signed.get("X-Amz-Credential", [""])[0]  # KEY/DATE/REGION/s3/aws4_request
            whose = credential.rsplit("/", 4)[0]
        return hashlib.sha256(f"{self.kind} {whose}".encode()).hexdigest()

    def as_header(self) -> str:
        """One line of ASCII."""
        text = as_json({name: value for name, value in vars(self).items() if value})
        header = base64.urlsafe_b64encode(text.encode()).decode()
        if len(header) > MAX_HEADER:
            raise ConfigError(
                f"Rights for {len(self.reads) + len(self.writes)} objects take {len(header)} "
                f"bytes; at most {MAX_HEADER} go with one request. Name fewer objects."
            )
        return header

    @classmethod
    def from_header(cls, header: str | None) -> Access:
        """Read what a request brought; AccessDenied (401) if it is nothing, or nonsense."""
        if not header:
            raise AccessDenied("The request brings no token.", status=401)
        if len(header) > MAX_HEADER:
            raise AccessDenied(
                f"Rights of {len(header)} bytes; at most {MAX_HEADER} are read.", status=401
            )
        try:
            raw = json.loads(base64.b64decode(header, altchars=b"-_", validate=True))
        except (binascii.Error, ValueError, RecursionError):
            raise AccessDenied("The request's token cannot be read.", status=401) from None
        if not _is_sound(raw):
            raise AccessDenied("The request's token is not of a known kind.", status=401)
        return cls(**raw)


def _is_sound(raw: Any) -> bool:
    """Whether its fields are ours, and of their types."""
    if not isinstance(raw, dict) or raw.get("kind") not in KINDS:
        return False
    if not set(raw) <= {"kind", "token", "account", "reads", "writes"}:
        return False
    token, account = raw.get("token", ""), raw.get("account", "")
    if not isinstance(token, str) or not isinstance(account, str):
        return False
    if raw["kind"] == "s3":
        if token or account:
            return False
    elif not _TOKEN.fullmatch(token):  # nothing that could end a header and begin another
        return False
    if raw["kind"] == "swift" and not _ACCOUNT.fullmatch(account):
        return False
    return all(
        isinstance(urls, dict)
        and all(isinstance(each, str) for pair in urls.items() for each in pair)
        and (not urls or raw["kind"] == "s3")
        for urls in (raw.get("reads", {}), raw.get("writes", {}))
    )
