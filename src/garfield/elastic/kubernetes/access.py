"""Where the API server is, and as whom to speak with it."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from garfield.core.errors import ConfigError, MissingDependency

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds who it is."""


@dataclass(frozen=True)
class Access:
    """An address, whom to trust there, and one way to prove who we are."""

    server: str
    authority: str | None = None
    """PEM certificates of who may have signed the server's; None for those of the system."""
    token_file: Path | None = None
    """Read anew for each request: a cluster replaces the token while we run."""
    token: str | None = None
    certificate: str | None = None
    """PEM certificate, if we prove ourselves by one."""
    key: str | None = None
    namespace: str = "default"
    """Ours, or the kubeconfig's."""

    def bearer(self) -> str | None:
        """The token to send, if there is one."""
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text(encoding="utf-8").strip()
        except OSError as problem:
            raise ConfigError(f"{self.token_file} cannot be read: {problem.strerror}.") from None

    def tls(self) -> ssl.SSLContext:
        """The context of connections to this server."""
        try:
            context = ssl.create_default_context(cadata=self.authority)
            if self.certificate and self.key:
                # the ssl module reads a certificate from a file only
                with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:
                    both.write(f"{self.certificate}\n{self.key}\n")
                    both.flush()
                    context.load_cert_chain(both.name)
        except (ssl.SSLError, ValueError) as problem:
            raise ConfigError(
                f"Certificates for {self.server} cannot be used: {problem}."
            ) from None
        return context


def find_access(kubeconfig: str | None = None) -> Access:
    """Use the file that was given, or the pod's service account, or the user's kubeconfig."""
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return of_this_pod()
    named = kubeconfig or os.environ.get("KUBECONFIG")
    return from_kubeconfig(Path(named) if named else Path.home() / ".kube" / "config")


def of_this_pod(
    environment: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT
) -> Access:
    """What Kubernetes tells every pod; ConfigError outside of one."""
    host, port = (environment.get(f"KUBERNETES_SERVICE_{what}") for what in ("HOST", "PORT"))
    if not host or not (account / "token").is_file():
        raise ConfigError(
            f"This process is in no pod with a service account: {account}/token is not there."
        )
    address = f"[{host}]" if ":" in host else host
    namespace = account / "namespace"
    return Access(
        f"https://{address}:{port or 443}",
        (account / "ca.crt").read_text(encoding="utf-8"),
        token_file=account / "token",
        namespace=namespace.read_text(encoding="utf-8").strip()
        if namespace.exists()
        else "default",
    )


def from_kubeconfig(path: Path) -> Access:
    """The current context of a kubeconfig; ConfigError if it cannot be used."""
    try:
        import yaml
    except ImportError:
        raise MissingDependency(
            "A kubeconfig is read with PyYAML, which is not installed. Install it with: "
            "pip install 'garfield-ml[elastic-kubernetes]'"
        ) from None
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        context = _named(content["contexts"], content["current-context"])["context"]
        cluster = _named(content["clusters"], context["cluster"])["cluster"]
        user = _named(content["users"], context["user"])["user"]
        server = cluster["server"]
    except OSError as problem:
        raise ConfigError(
            f"{path} cannot be read: {problem.strerror}. Name a kubeconfig, or run in a pod."
        ) from None
    except (yaml.YAMLError, KeyError, TypeError) as problem:
        raise ConfigError(f"{path} is no kubeconfig with a current context: {problem}.") from None
    if "exec" in user or "auth-provider" in user:
        raise ConfigError(
            f"{path} logs in by a plug-in, which is not supported. Use a token or a certificate."
        )
    return Access(
        server,
        _content(cluster, "certificate-authority", path),
        token_file=Path(user["tokenFile"]) if "tokenFile" in user else None,
        token=user.get("token"),
        certificate=_content(user, "client-certificate", path),
        key=_content(user, "client-key", path),
        namespace=context.get("namespace", "default"),
    )


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _content(holder: Mapping[str, Any], name: str, kubeconfig: Path) -> str | None:
    """What stands in the file that is named, or in the kubeconfig itself."""
    if f"{name}-data" in holder:
        return base64.b64decode(holder[f"{name}-data"]).decode()
    if name not in holder:
        return None
    file = kubeconfig.parent / str(holder[name])  # a relative path is relative to the kubeconfig
    try:
        return file.read_text(encoding="utf-8")
    except OSError as problem:
        raise ConfigError(f"{file}, named in {kubeconfig}, is gone: {problem.strerror}.") from None
