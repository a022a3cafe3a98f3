"""Where stores are and who we are to them; what is not given comes from the environment."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from urllib.parse import urlsplit

from garfield.core.errors import ConfigError


@dataclass(frozen=True)
class StoreSettings:
    """How to reach stores: Swift and S3 by their addresses, files by a directory."""

    swift_auth_url: str | None = None
    """Where Swift gives tokens: tempauth's /auth/v1.0, or keystone's /v3. (ST_AUTH, OS_AUTH_URL)"""
    swift_user: str | None = None
    """User name at Swift. (ST_USER, OS_USERNAME)"""
    swift_key: str | None = field(default=None, repr=False)
    """Password at Swift. (ST_KEY, OS_PASSWORD)"""
    swift_project: str | None = None
    """Project at keystone. (OS_PROJECT_NAME)"""
    swift_domain: str = "Default"
    """Domain of user and project at keystone. (OS_USER_DOMAIN_NAME)"""
    swift_token: str | None = field(default=None, repr=False)
    """A token, in place of user and password. (OS_AUTH_TOKEN)"""
    swift_storage_url: str | None = None
    """Our account at Swift: with a token, or where auth tells another. (OS_STORAGE_URL)"""
    swift_endpoint: str | None = None
    """For servers: the one Swift that tokens of clients are sent to, like http://host:8080."""
    s3_endpoint: str | None = None
    """Address of the S3 API; Amazon's if not given. (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL)"""
    s3_region: str = "us-east-1"
    """Region of the S3 API. (AWS_REGION, AWS_DEFAULT_REGION)"""
    s3_access_key: str | None = None
    """Access key of the S3 API. (AWS_ACCESS_KEY_ID)"""
    s3_secret_key: str | None = field(default=None, repr=False)
    """Secret key of the S3 API. (AWS_SECRET_ACCESS_KEY)"""
    s3_session_token: str | None = field(default=None, repr=False)
    """Session token of temporary S3 keys. (AWS_SESSION_TOKEN)"""
    file_token: str | None = field(default=None, repr=False)
    """Our token for servers that hold files. (GARFIELD_SPLIT_TOKEN)"""
    file_root: str | None = None
    """For servers: the directory that clients' file:// addresses must lie in."""
    file_tokens: str | None = None
    """For servers: a JSON file, {"SHA-256 of a token": ["directory under the root", ...]}."""
    store_timeout_s: float = 60.0
    """How long a store may be silent before it counts as unreachable."""
    plain_http: bool = False
    """Speak http to stores that are not on this machine: tokens then travel in the clear."""

    def with_environment(self, environment: Mapping[str, str] | None = None) -> StoreSettings:
        """The same, with what is not given taken from variables that other clients read, too."""
        environ = os.environ if environment is None else environment
        found = {}
        for name, variables in _VARIABLES.items():
            value = next((environ[each] for each in variables if environ.get(each)), None)
            if value is not None and getattr(self, name) == _DEFAULTS[name]:
                found[name] = value
        return replace(self, **found)  # type: ignore[arg-type]

    def check_private(self, url: str) -> str:
        """An address to which secrets may be sent: https, or on this machine."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise ConfigError(f"{url[:80]} is no address of a store. Write https://host[:port].")
        if parts.scheme == "http" and not self.plain_http and not is_loopback(parts.hostname):
            raise ConfigError(
                f"{url[:80]} is not on this machine and speaks plain http: whoever listens could "
                "take the token. Use https, or plain_http on a network that is yours alone."
            )
        return url


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port: what decides who is spoken to."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(f"{url[:80]} is no address.") from None
    standard = 443 if parts.scheme == "https" else 80
    return parts.scheme, (parts.hostname or "").lower(), port or standard


_DEFAULTS = {each.name: each.default for each in fields(StoreSettings)}
_VARIABLES: dict[str, tuple[str, ...]] = {
    "swift_auth_url": ("ST_AUTH", "OS_AUTH_URL"),
    "swift_user": ("ST_USER", "OS_USERNAME"),
    "swift_key": ("ST_KEY", "OS_PASSWORD"),
    "swift_project": ("OS_PROJECT_NAME",),
    "swift_domain": ("OS_USER_DOMAIN_NAME",),
    "swift_token": ("OS_AUTH_TOKEN",),
    "swift_storage_url": ("OS_STORAGE_URL",),
    "s3_endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "s3_region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "s3_access_key": ("AWS_ACCESS_KEY_ID",),
    "s3_secret_key": ("AWS_SECRET_ACCESS_KEY",),
    "s3_session_token": ("AWS_SESSION_TOKEN",),
    "file_token": ("GARFIELD_SPLIT_TOKEN",),
}
