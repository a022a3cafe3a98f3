"""How torchrun is started for a worker of an elastic job: the fallback engine, see `torchrun`.

Each worker has an agent of its own, so that one can come or go without the others' agents. The
store where agents meet belongs to whoever controls the job: an agent that hosted it could never
leave. Needs no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

TUNED: Mapping[str, int] = {
    "last_call_timeout": 1,
    "keep_alive_interval": 1,
    "keep_alive_max_attempt": 3,
}
"""Seconds and attempts with which a change takes seconds; torchrun's own (30, 5 and 3) take most of
a minute. With fewer attempts two halves of a loaded machine each went on alone."""
_RESTARTS = 1_000_000
"""Every change is a restart to torchrun, and its default allows none."""


def agent_command(
    script: Sequence[str],
    store: str,
    job: str,
    *,
    workers: tuple[int, int],
    rendezvous: Mapping[str, int] = TUNED,
    address: str = "127.0.0.1",
) -> list[str]:
    """The command that starts one worker of a job of least and most `workers`.

    `script` is a file or -m and a module, with its arguments; `store` the host:port of a TCPStore
    of the controller's; `address` where other workers reach this one.
    """
    least, most = workers
    options = {"is_host": 0, **rendezvous}
    return [
        sys.executable, "-m", "torch.distributed.run",
        "--nnodes", f"{least}:{most}",
        "--nproc-per-node", "1",
        "--max-restarts", str(_RESTARTS),
        "--rdzv-backend", "c10d",
        "--rdzv-endpoint", store,
        "--rdzv-id", job,
        "--rdzv-conf", ",".join(f"{name}={value}" for name, value in options.items()),
        "--local-addr", address,
        *script,
    ]  # fmt: skip


def agent_environment() -> dict[str, str]:
    """What to add to an agent's environment: without it torch 2.13 hangs when an agent joins."""
    return {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
