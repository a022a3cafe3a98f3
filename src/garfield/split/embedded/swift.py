"""Start and stop a small but real OpenStack Swift: a proxy, and one server each for accounts,
containers and objects.

    with EmbeddedSwift(directory) as swift:
        store = open_store("swift://photos", settings=swift.settings("alice"))

Each server listens on a port of the system's choice and tells it; then the rings are written,
which name those ports, and the servers are told to go on. The proxy speaks Swift's own API
(tempauth) and S3's (s3api) on one port. There is one copy of each object, and nothing is
replicated or audited: a demo's data is as safe as its directory.

Each server is a supervised process and ends with the process that started it, however that
ends. Needs the extra `split-demo`.
"""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from garfield.core.errors import ConfigError, MissingDependency, NodeFailed, UnknownName
from garfield.runs.supervisor import Supervisor
from garfield.split.embedded.swift_config import ROLES, build_rings, write_configs
from garfield.split.embedded.swift_process import serve_role
from garfield.split.stores.settings import StoreSettings

START_S = 120.0
"""How long servers may take to start: 3 s where nothing else runs, more where much does."""


@dataclass(frozen=True)
class SwiftUser:
    """Somebody with an account of their own."""

    account: str
    name: str
    key: str

    @property
    def login(self) -> str:
        """User name of tempauth, and access key of S3."""
        return f"{self.account}:{self.name}"


class EmbeddedSwift:
    """A running Swift, with an account for each of its users. Use as a context."""

    def __init__(
        self,
        directory: Path,
        *,
        users: tuple[str, ...] = ("alice", "bob"),
        host: str = "127.0.0.1",
        middleware: str | None = None,
    ) -> None:
        """`middleware` is one more filter for the proxy's pipeline, just before it: the name
        of a paste filter factory, `package.module:function`."""
        if find_spec("swift") is None:
            raise MissingDependency(
                "OpenStack Swift is not installed. "
                "Install it with: pip install 'garfield-ml[split-demo]'"
            )
        self.directory = directory.absolute()
        self.host = host
        self.users = {
            name: SwiftUser(f"{name}account", name, secrets.token_hex(16)) for name in users
        }
        self.ports: dict[str, int] = {}
        self._middleware = middleware
        self._stack = ExitStack()

    def __enter__(self) -> EmbeddedSwift:
        with self._stack:
            self._start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def endpoint(self) -> str:
        """Where the proxy listens: S3's endpoint, and the root of Swift's own API."""
        return f"http://{self.host}:{self.ports['proxy']}"

    @property
    def auth_url(self) -> str:
        return f"{self.endpoint}/auth/v1.0"

    @property
    def pids(self) -> dict[str, int]:
        """Pids of the servers, by role."""
        return self._supervisor.pids

    def settings(self, user: str) -> StoreSettings:
        """What `open_store` needs to be this user, through either API."""
        if user not in self.users:
            raise UnknownName("a user of this Swift", user, self.users)
        who = self.users[user]
        return StoreSettings(
            swift_auth_url=self.auth_url,
            swift_user=who.login,
            swift_key=who.key,
            s3_endpoint=self.endpoint,
            s3_access_key=who.login,
            s3_secret_key=who.key,
            plain_http=True,
        )

    def server_settings(self) -> StoreSettings:
        """What a server beside this store needs: its addresses, and no key of anybody."""
        return StoreSettings(
            swift_endpoint=self.endpoint, s3_endpoint=self.endpoint, plain_http=True
        )

    def _start(self) -> None:
        for folder in ("disk", "logs"):
            (self.directory / folder).mkdir(parents=True, exist_ok=True)
        _check_disk(self.directory / "disk")
        self._supervisor = self._stack.enter_context(Supervisor())
        for role in ROLES:
            self._supervisor.start(role, serve_role, role, str(self.directory), self.host)
        told = self._supervisor.started(START_S)
        self.ports = {role: int(event["port"]) for role, event in told.items()}
        build_rings(self.directory, self.host, self.ports)
        write_configs(
            self.directory, self.host, self.ports, tuple(self.users.values()), self._middleware
        )
        for role in ROLES:
            self._supervisor.send(role, "go on")
        self._await_ready()

    def _await_ready(self) -> None:
        """Wait until each server has loaded its application; NodeFailed, with its log, if not."""
        waiting = set(ROLES)
        while waiting:
            events = self._supervisor.events(START_S)
            if not events:
                raise NodeFailed(f"Swift's {', '.join(waiting)} did not start in {START_S:g} s.")
            for role, event in events:
                if event["event"] == "ready":
                    waiting.discard(role)
                elif event["event"] in ("failed", "ended"):
                    raise NodeFailed(f"Swift's {role} did not start: {event['error']}")


def _check_disk(disk: Path) -> None:
    """Swift keeps what it knows of an object in the file's extended attributes."""
    probe = disk / ".probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.garfield", b"1")
    except OSError as problem:
        raise ConfigError(
            f"{disk} is on a file system without extended attributes ({problem}), which Swift "
            "needs. Choose another directory."
        ) from None
    finally:
        probe.unlink(missing_ok=True)
