"""The files that Swift's servers read: rings, and one configuration each."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from garfield.core.files import write_text

if TYPE_CHECKING:
    from garfield.split.embedded.swift import SwiftUser

ROLES = ("account", "container", "object", "proxy")
_PART_POWER = 4  # 16 parts: there is one disk
_PIPELINE = "catch_errors healthcheck cache listing_formats bulk s3api tempauth copy slo dlo"


def build_rings(directory: Path, host: str, ports: Mapping[str, int]) -> None:
    """One ring for accounts, containers and objects: which disk of which server has what."""
    from swift.common.ring import RingBuilder

    for role in ("account", "container", "object"):
        ring = RingBuilder(_PART_POWER, 1, 0)
        device = {
            "id": 0, "region": 0, "zone": 0, "weight": 1.0, "device": "disk", "meta": "",
            "ip": host, "port": ports[role],
            "replication_ip": host, "replication_port": ports[role],
        }  # fmt: skip
        ring.add_dev(device)
        ring.rebalance()
        ring.get_ring().save(str(directory / f"{role}.ring.gz"))


def write_configs(
    directory: Path,
    host: str,
    ports: Mapping[str, int],
    users: Sequence[SwiftUser],
    middleware: str | None,
) -> None:
    """swift.conf, and one file for each role."""
    secret = directory / "swift.conf"
    if not secret.exists():  # objects lie where the hash of their names says, so it must stay
        write_text(
            secret,
            f"[swift-hash]\nswift_hash_path_suffix = {secrets.token_hex(16)}\n"
            "[storage-policy:0]\nname = one-copy\ndefault = yes\n",
        )
    secret.chmod(0o600)
    for role in ROLES:
        text = _common(directory, host, ports[role], role)
        text += _proxy(users, middleware) if role == "proxy" else _storage(role)
        path = directory / f"{role}.conf"
        write_text(path, text)
        path.chmod(0o600)  # the proxy's holds the users' keys


def _common(directory: Path, host: str, port: int, role: str) -> str:
    return f"""[DEFAULT]
bind_ip = {host}
bind_port = {port}
workers = 0
user = {os.environ.get("USER", "nobody")}
swift_dir = {directory}
devices = {directory}
mount_check = false
disable_fallocate = true
log_name = {role}
log_level = WARNING
log_address = {directory / "no-syslog"}
log_custom_handlers = garfield.split.embedded.swift_process.log_to_file
garfield_log = {directory / "logs" / role}.log
"""


def _storage(role: str) -> str:
    return f"[pipeline:main]\npipeline = {role}-server\n" + (
        f"[app:{role}-server]\nuse = egg:swift#{role}\n"
        # a container's listing is up to date when a PUT has ended, also under load
        + ("container_update_timeout = 30\n" if role == "object" else "")
    )


def _proxy(users: Sequence[SwiftUser], middleware: str | None) -> str:
    logins = "\n".join(f"user_{who.account}_{who.name} = {who.key} .admin" for who in users)
    own = "" if middleware is None else f"[filter:own]\npaste.filter_factory = {middleware}\n"
    return f"""[pipeline:main]
pipeline = {_PIPELINE} {"own " if middleware else ""}proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = false
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:cache]
paste.filter_factory = garfield.split.embedded.swift_process:local_cache
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:bulk]
use = egg:swift#bulk
[filter:s3api]
use = egg:swift#s3api
s3_acl = false
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
{logins}
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
{own}"""
