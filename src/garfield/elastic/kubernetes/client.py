"""Requests to the API server, and what its answers mean.

Objects are JSON, as the API server sends them. Every request has a deadline. What went wrong is an
exception of `core/errors.py`: `ObjectAbsent` and `WriteConflict` are answers that callers act on,
`ClusterUnreachable` is worth a retry, any other `ClusterError` is a refusal.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from garfield.core.errors import (
    ClusterError,
    ClusterUnreachable,
    MissingDependency,
    ObjectAbsent,
    WriteConflict,
)
from garfield.core.files import as_json
from garfield.elastic.kubernetes.access import Access

try:
    import httpx
except ImportError:
    raise MissingDependency(
        "Kubernetes is spoken to with httpx, which is not installed. Install it with: "
        "pip install 'garfield-ml[elastic-kubernetes]'"
    ) from None

Object = dict[str, Any]
_PAGE = 500
_MERGE = "application/merge-patch+json"
_WITH_MEANING = {404: ObjectAbsent, 409: WriteConflict}
_OVERLOADED = (429, 500, 502, 503, 504)


class ApiServer:
    """One cluster, as seen by one user. May be used by several threads at once."""

    def __init__(self, access: Access, timeout_s: float = 10.0) -> None:
        self.access = access
        # of the environment's proxies none: an API server is reached directly
        self._http = httpx.Client(
            base_url=access.server, verify=access.tls(), timeout=timeout_s, trust_env=False
        )

    def get(self, path: str) -> Object:
        return self._send("GET", path)

    def list(self, path: str, **query: str) -> list[Object]:
        """All objects of a collection, page by page; `labelSelector` and the like select some."""
        found: list[Object] = []
        going_on: dict[str, str] = {}
        while True:
            page = self._send("GET", path, query={**query, "limit": str(_PAGE), **going_on})
            found += page.get("items") or []
            token = page["metadata"].get("continue")
            if not token:
                return found
            going_on = {"continue": token}

    def create(self, path: str, body: Object) -> Object:
        """Make a new object; WriteConflict if there is one of that name."""
        return self._send("POST", path, body)

    def replace(self, path: str, body: Object) -> Object:
        """Write an object; WriteConflict if it is not the version any more that `body` names."""
        return self._send("PUT", path, body)

    def patch(self, path: str, body: Object) -> Object:
        """Merge into an object: what is named is set, null removes; the rest stays."""
        return self._send("PATCH", path, body, kind=_MERGE)

    def delete(self, path: str, grace_s: int | None = None) -> None:
        """Begin to delete; what is gone already is no error."""
        query = {} if grace_s is None else {"gracePeriodSeconds": str(grace_s)}
        try:
            self._send("DELETE", path, query=query)
        except ObjectAbsent:
            return

    def close(self) -> None:
        self._http.close()

    def _send(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: dict[str, str] | None = None,
        kind: str = "application/json",
    ) -> Object:
        headers = {"Accept": "application/json"}
        bearer = self.access.bearer()
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        content = None
        if body is not None:
            headers["Content-Type"] = kind
            content = as_json(body)
        try:
            answer = self._http.request(
                method, path, params=query, content=content, headers=headers
            )
        except httpx.TransportError as problem:
            raise ClusterUnreachable(
                f"The API server {self.access.server} does not answer: "
                f"{problem or type(problem).__name__}."
            ) from None
        if answer.is_success:
            return dict(answer.json())
        raise _error(method, path, answer)


def _error(method: str, path: str, answer: httpx.Response) -> ClusterError:
    said = answer.text[:500]
    with suppress(ValueError, KeyError, TypeError):  # not from the API server, but on the way
        said = str(answer.json()["message"])
    text = f"{method} {path} was answered {answer.status_code}: {said}"
    if answer.status_code in _OVERLOADED:
        return ClusterUnreachable(text)
    return _WITH_MEANING.get(answer.status_code, ClusterError)(text)
