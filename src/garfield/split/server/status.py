"""How a server tells its load: to clients that plan by it, and to whoever operates it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from garfield.core.version import VERSION

if TYPE_CHECKING:
    from garfield.split.server.service import SplitService

PROTOCOL = 1


def status_of(service: SplitService) -> Mapping[str, Any]:
    """What `GET /v1/status` answers: nothing of any tenant."""
    queue, pool = service.queue, service.pool
    return {
        "protocol": PROTOCOL,
        "version": VERSION,
        "store": service.settings.store.partition("://")[0],
        "load": {
            "waiting": queue.waiting,
            "running": queue.running,
            "workers": len(pool.all),
            "free_workers": sum(len(pool.free(device)) for device in pool.budgets),
            "service_s": queue.service_s,
            "slowest_plan_s": queue.planning_s,
        },
        "devices": {
            name: {
                "budget_bytes": record.budget_bytes,
                "reserved_bytes": queue.reserved_bytes(name),
                "peak_reserved_bytes": record.peak_reserved_bytes,
                "peak_bytes": pool.devices[name].peak_bytes,
                "peak_running": record.peak_running,
                "served": record.served,
                "limited_by": pool.devices[name].source.value,
            }
            for name, record in queue.records.items()
        },
        "served": asdict(service.served),
        "workers": asdict(pool.record),
        "measured_models": service.book.made,
        "weights_fetched_bytes": service.weights.fetched_bytes,
    }
