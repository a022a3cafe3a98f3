"""Of several operators one leads: by a Lease that changes hands only by compare-and-set.

A lease is taken over if nobody renewed it for as long as it holds, by our own clock since we saw it
last: clocks of machines need not agree. Every write names the version that was read, so that of two
who try at once one fails. Who leads stops a while before others may take over: `is_leader` is
False once the last renewal is two thirds of the duration old, whatever the thread that renews does.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime, timezone

from garfield.core.errors import ClusterError, ObjectAbsent, WriteConflict
from garfield.elastic.kubernetes.client import ApiServer, Object

_log = logging.getLogger("garfield.elastic.operator")
_TRUSTED = 2 / 3


class Leadership:
    """One operator's part in the election. Use as a context: leaving it gives the lease back."""

    def __init__(
        self, api: ApiServer, namespace: str, name: str, identity: str, duration_s: float
    ) -> None:
        self._api, self._name, self.identity, self._duration_s = api, name, identity, duration_s
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._renewed_at = float("-inf")
        self._seen: tuple[str, float] = ("", float("-inf"))
        """The version of somebody else's lease, and when we first saw it."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="garfield-leadership")

    @property
    def is_leader(self) -> bool:
        """Whether nobody else can lead at this moment."""
        return time.monotonic() - self._renewed_at < self._duration_s * _TRUSTED

    def __enter__(self) -> Leadership:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self.is_leader:
            self._release()

    def try_to_lead(self) -> bool:
        """Take the lease, or renew it; whether we lead now."""
        began = time.monotonic()
        was_leader = self.is_leader
        try:
            lease = self._read_or_create()
            if self._may_take(lease):
                self._write(lease, self.identity)
                self._renewed_at = began
        except WriteConflict:
            _log.info("Another operator was faster to take the lease.")
        except ClusterError as problem:
            _log.warning("The lease cannot be renewed: %s", problem)
        if self.is_leader and not was_leader:
            _log.info("%s leads.", self.identity)
        return self.is_leader

    def _run(self) -> None:
        while not self._ended.is_set():
            self.try_to_lead()
            self._ended.wait(self._duration_s / 5)

    def _read_or_create(self) -> Object:
        try:
            return self._api.get(f"{self._path}/{self._name}")
        except ObjectAbsent:
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name},
                "spec": {"leaseDurationSeconds": 1},
            }
            return self._api.create(self._path, lease)

    def _may_take(self, lease: Object) -> bool:
        holder = lease["spec"].get("holderIdentity") or ""
        if holder in ("", self.identity):
            return True
        version = lease["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = version, time.monotonic()
        held_s = float(lease["spec"].get("leaseDurationSeconds") or self._duration_s)
        return time.monotonic() - self._seen[1] > held_s

    def _write(self, lease: Object, holder: str) -> None:
        spec, now = lease["spec"], datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if spec.get("holderIdentity") != holder:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = spec.get("leaseTransitions", 0) + 1
        spec["holderIdentity"], spec["renewTime"] = holder, now
        spec["leaseDurationSeconds"] = max(1, round(self._duration_s))
        self._api.replace(f"{self._path}/{self._name}", lease)

    def _release(self) -> None:
        try:
            lease = self._api.get(f"{self._path}/{self._name}")
            if lease["spec"].get("holderIdentity") == self.identity:
                self._write(lease, "")
        except ClusterError as problem:
            _log.warning("The lease was not given back: %s", problem)
