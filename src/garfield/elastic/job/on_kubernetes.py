"""A job's agreement in the status of its ElasticJob: for workers in pods, and the operator.

The API server refuses a write that names an older version of the object than there is. So a
compare-and-set is: read, compute, write with the version that was read; if somebody was faster,
again. All of it stands in `status.agreed`, which only this file writes.

Two things are kept beside it. Measurements are many and nobody compares them, so they go to a
ConfigMap, a key for each worker. And the batch size comes from the operator by another ConfigMap,
which each pod sees as a file, one earlier than another: of the file and the status, the later
counts.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from garfield.core.errors import (
    ClusterError,
    ClusterUnreachable,
    ConfigError,
    CoordinationUnreachable,
    WriteConflict,
)
from garfield.core.files import as_json
from garfield.elastic.job.coordination import (
    BatchSize,
    CheckpointPointer,
    Generation,
    JobView,
    check_members,
)
from garfield.elastic.kubernetes.client import ApiServer
from garfield.elastic.kubernetes.naming import (
    BATCH_DIRECTORY,
    core_path,
    jobs_path,
    reports_map,
)

BATCH_FILE = "batch.json"
"""The key of the ConfigMap, and so the file's name."""
_CONFLICT_S = 0.005
_LEAST_S = 0.05

Agreed = dict[str, Any]


class KubernetesCoordination:
    """Coordination of one job, in its ElasticJob. Any number of processes may open it."""

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        name: str,
        *,
        host: str = "",
        batch_directory: Path | None = Path(BATCH_DIRECTORY),
        least_s: float = _LEAST_S,
    ) -> None:
        """`host` is the pod's address. Reads of this process are at least `least_s` apart: workers
        look often while they meet, and an API server is shared by all jobs."""
        self.host, self._api = host, api
        self._path = f"{jobs_path(namespace)}/{name}"
        self._reports_path = f"{core_path('configmaps', namespace)}/{reports_map(name)}"
        self._batch_file = batch_directory / BATCH_FILE if batch_directory else None
        self._pace = _Pace(least_s)

    def check(self) -> None:
        """Raise ConfigError for what is no job, or none that this account may join."""
        try:
            self._api.get(self._path)
        except ClusterUnreachable:
            return  # later perhaps
        except ClusterError as problem:
            raise ConfigError(f"{self._path} is no job to join: {problem}") from None

    def read(self) -> JobView:
        self._pace.wait()
        with _reaching():
            return view_of(self._api.get(self._path), self._batch_in_file())

    def propose(self, members: Sequence[str], *, after: int, reopen: bool = False) -> bool:
        named = check_members(members)

        def change(agreed: Agreed) -> bool:
            if _newest(agreed).number != after or (agreed.get("finished") and not reopen):
                return False
            agreed["finished"] = False
            agreed["generation"] = {"number": after + 1, "members": list(named)}
            stayed = set(_arrived(agreed)) & set(named)
            agreed["arrived"] = _arrivals(dict.fromkeys(stayed, ""))
            return True

        return self._changed(change)

    def arrive(self, number: int, member: str, store: str = "") -> None:
        def change(agreed: Agreed) -> bool:
            if _newest(agreed).number != number:
                return False  # it has come too late, and is forgotten
            agreed["arrived"] = _arrivals({**_arrived(agreed), member: store})
            return True

        self._changed(change)

    def begin(self, number: int) -> bool:
        def change(agreed: Agreed) -> bool:
            if number <= agreed.get("begun", 0):
                return False
            agreed["begun"] = number
            return True

        return self._changed(change)

    def set_batch(self, batch: BatchSize) -> bool:
        def change(agreed: Agreed) -> bool:
            before = _batch(agreed)
            if before is not None and batch.since_us <= before.since_us:
                return False
            agreed["batch"] = batch_as_json(later_batch(before, batch))
            return True

        return self._changed(change)

    def move_checkpoint(
        self, pointer: CheckpointPointer, *, after: CheckpointPointer | None
    ) -> bool:
        def change(agreed: Agreed) -> bool:
            if pointer.generation < agreed.get("begun", 0) or _pointer(agreed) != after:
                return False
            agreed["checkpoint"] = {
                "generation": pointer.generation,
                "step": pointer.step,
                "path": pointer.path,
            }
            return True

        return self._changed(change)

    def report(self, member: str, measured: Mapping[str, Any]) -> None:
        with _reaching():
            self._api.patch(self._reports_path, {"data": {member: as_json(measured)}})

    def reports(self) -> dict[str, dict[str, Any]]:
        with _reaching():
            return reports_in(self._api.get(self._reports_path))

    def finish(self) -> None:
        def change(agreed: Agreed) -> bool:
            agreed["finished"] = True
            return True

        self._changed(change)

    def close(self) -> None:
        self._api.close()

    def _changed(self, change: Callable[[Agreed], bool]) -> bool:
        """Change what is agreed by compare-and-set; False if `change` says that it cannot be."""
        with _reaching():
            while True:
                job = self._api.get(self._path)
                status = job.setdefault("status", {})
                agreed = status.setdefault("agreed", {})
                if not change(agreed):
                    return False
                try:
                    self._api.replace(f"{self._path}/status", job)
                    return True
                except WriteConflict:
                    time.sleep(_CONFLICT_S)

    def _batch_in_file(self) -> BatchSize | None:
        if self._batch_file is None:
            return None
        try:
            return batch_from_json(self._batch_file.read_text(encoding="utf-8"))
        except OSError:
            return None  # there is none yet, or this is no pod


def view_of(job: Mapping[str, Any], told: BatchSize | None = None) -> JobView:
    """What an ElasticJob's status says, and the batch size that was told by the side channel."""
    agreed = (job.get("status") or {}).get("agreed") or {}
    batch = _batch(agreed)
    return JobView(
        _newest(agreed),
        agreed.get("begun", 0),
        _arrived(agreed),
        batch if told is None else later_batch(batch, told),
        _pointer(agreed),
        bool(agreed.get("finished")),
    )


def later_batch(one: BatchSize | None, other: BatchSize) -> BatchSize:
    """The later of both; the lower limit of both is kept."""
    if one is None:
        return other
    latest = max(one, other, key=lambda batch: batch.since_us)
    limits = [each.most for each in (one, other) if each.most is not None]
    return BatchSize(latest.size, latest.since_us, min(limits, default=None))


def batch_as_json(batch: BatchSize) -> dict[str, int]:
    """A batch size as the status and the ConfigMap hold it."""
    told = {"size": batch.size, "sinceUs": batch.since_us}
    return told if batch.most is None else {**told, "most": batch.most}


def batch_from_json(text: str) -> BatchSize | None:
    """The batch size that a file tells; None if that is none."""
    try:
        told = json.loads(text)
        return BatchSize(int(told["size"]), int(told["sinceUs"]), told.get("most"))
    except (ValueError, KeyError, TypeError):
        return None


def reports_in(config_map: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The last report of each member, from the job's ConfigMap; what is none is passed over."""
    found = {}
    for member, text in (config_map.get("data") or {}).items():
        with suppress(ValueError, RecursionError):  # a script may have written anything there
            report = json.loads(text)
            if isinstance(report, dict):
                found[member] = report
    return found


class _Pace:
    """Holds readers back so that they do not come more often than they should."""

    def __init__(self, least_s: float) -> None:
        self._least_s, self._last = least_s, float("-inf")
        self._lock = threading.Lock()

    def wait(self) -> None:
        with self._lock:
            time.sleep(max(0.0, self._last + self._least_s - time.monotonic()))
            self._last = time.monotonic()


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except ClusterError as problem:
        raise CoordinationUnreachable(str(problem)) from None


def _newest(agreed: Agreed) -> Generation:
    told = agreed.get("generation")
    return Generation(told["number"], tuple(told["members"])) if told else Generation(0, ())


def _arrived(agreed: Agreed) -> dict[str, str]:
    return {each["member"]: each.get("store", "") for each in agreed.get("arrived") or ()}


def _arrivals(arrived: Mapping[str, str]) -> list[dict[str, str]]:
    # an empty text is left out: some API servers take it for null, and refuse it
    return [
        {"member": member, "store": store} if store else {"member": member}
        for member, store in sorted(arrived.items())
    ]


def _batch(agreed: Agreed) -> BatchSize | None:
    told = agreed.get("batch")
    return BatchSize(told["size"], told["sinceUs"], told.get("most")) if told else None


def _pointer(agreed: Agreed) -> CheckpointPointer | None:
    told = agreed.get("checkpoint")
    return CheckpointPointer(told["generation"], told["step"], told["path"]) if told else None
