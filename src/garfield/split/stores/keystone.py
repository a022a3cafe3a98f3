"""A token from keystone, OpenStack's identity service, version 3: one POST.

The catalogue that comes with it tells where the project's account at Swift is. keystone's own
client brings a dozen packages for what is one request.
"""

from __future__ import annotations

from typing import Any

from garfield.core.errors import AccessDenied, StoreUnreachable
from garfield.split.stores.settings import StoreSettings


def keystone_token(settings: StoreSettings) -> tuple[str, str]:
    """Storage URL and token of a user within a project."""
    import requests

    domain = {"name": settings.swift_domain}
    user = {"name": settings.swift_user, "domain": domain, "password": settings.swift_key}
    auth: dict[str, Any] = {
        "identity": {"methods": ["password"], "password": {"user": user}},
    }
    if settings.swift_project:
        auth["scope"] = {"project": {"name": settings.swift_project, "domain": domain}}
    reply = requests.post(
        str(settings.swift_auth_url).rstrip("/") + "/auth/tokens",
        json={"auth": auth},
        timeout=settings.store_timeout_s,
        allow_redirects=False,
    )
    if reply.status_code in (401, 403):
        raise AccessDenied(f"{settings.swift_auth_url} does not let us in.", status=401)
    token = reply.headers.get("X-Subject-Token")
    if reply.status_code != 201 or not token:
        raise StoreUnreachable(f"{settings.swift_auth_url} answers with {reply.status_code}.")
    return settings.swift_storage_url or _object_store(reply.json()), token


def _object_store(told: Any) -> str:
    """The public address of the service of type object-store in a token's catalogue."""
    try:
        services = told["token"]["catalog"]
        found = next(each for each in services if each["type"] == "object-store")
        public = next(each for each in found["endpoints"] if each["interface"] == "public")
        return str(public["url"])
    except (KeyError, TypeError, StopIteration):
        raise StoreUnreachable("keystone's catalogue names no public object-store.") from None
