"""grpcio, and how it is set up: bounded, uncompressed, quick to notice who is gone.

The only file that imports grpcio, which comes without types.
"""

from __future__ import annotations

import os
from typing import Any

from garfield.core.errors import MissingDependency
from garfield.transport.grpc import wire

# before grpcio is loaded: we keep the reasons, and no peer shall fill our standard error
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

try:
    import grpc  # type: ignore[import-untyped]
    from grpc import aio
except ImportError:
    raise MissingDependency(
        "Nodes on several processes speak gRPC, and grpcio is not installed. "
        "Install it with: pip install 'garfield-ml[train]'"
    ) from None

__all__ = [
    "CLIENT", "LINK_CLIENT", "LINK_METHOD", "LINK_SERVER", "MAX_CALL_S", "MAX_CONNECTIONS",
    "METHOD", "NAME_KEY", "SERVER", "aio", "grpc",
]  # fmt: skip

METHOD = "/garfield/pull"
LINK_METHOD = "/garfield/link"
"""What a node calls that wants to be asked over the call itself (`links.py`)."""
NAME_KEY = "garfield-name"
"""The metadata in which an asker names itself where there are no certificates."""

MAX_CALL_S = 3600.0
"""Every call has a deadline, and none further away; a patient asker asks again."""

MAX_CONNECTIONS = "grpc.max_allowed_incoming_connections"
"""An option of servers; `connections.py` knows how many there can be, and for whom."""

Options = list[tuple[str, Any]]

_SHARED: Options = [
    ("grpc.compression_enabled_algorithms_bitset", 1),  # none: 0.4 MB of gzip can be 1.3 GB
    ("grpc.max_metadata_size", 8192),
    ("grpc.absolute_max_metadata_size", 16384),
    ("grpc.keepalive_time_ms", 10_000),  # a host that vanished sends no FIN
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),  # a long poll is silent, and alive
]

CLIENT: Options = [
    *_SHARED,
    ("grpc.max_receive_message_length", wire.MAX_MESSAGE),
    ("grpc.max_send_message_length", wire.MAX_REQUEST),
    ("grpc.enable_retries", 0),  # ours know the deadline, and keep the reason
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.enable_http_proxy", 0),  # a proxy in the environment is not for peers
    ("grpc.use_local_subchannel_pool", 1),  # closing a channel closes its connection
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # how long one attempt to connect may take
]

SERVER: Options = [
    *_SHARED,
    ("grpc.max_receive_message_length", wire.MAX_REQUEST),
    ("grpc.max_send_message_length", wire.MAX_MESSAGE),
    ("grpc.max_concurrent_streams", 16),  # per connection
    ("grpc.server_handshake_timeout_ms", 3_000),  # whoever is slower connects again
    ("grpc.max_connection_idle_ms", 30_000),  # without a call; who asks later connects again
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.so_reuseport", 0),  # a port in use is an error, not a share of its connections
]

LINK_SERVER: Options = [("grpc.max_receive_message_length", wire.MAX_MESSAGE)]
LINK_CLIENT: Options = [("grpc.max_send_message_length", wire.MAX_MESSAGE)]
"""Instead of the same options of `SERVER` and `CLIENT`, where vectors travel over links."""
