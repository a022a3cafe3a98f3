"""What is promised of every transport, however it moves its vectors.

    from garfield.testing import check_transport
    from garfield.testing.network import Network

    check_transport(lambda: Network(lambda name, addresses: MyTransport(name, addresses)))

`addresses` fills up as nodes start: names to what their transports gave as `address`.
A transport with a clock of its own overrides the last four methods of `Network`. The checks
stand in a file for each of what is promised.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import wraps

from garfield.testing.network import Cluster, NewNetwork
from garfield.testing.promises import Check, keep_all
from garfield.testing.transports import coming_and_going, documents, replies, silence, waiting


def check_transport(new_network: NewNetwork, name: str = "the transport") -> None:
    """Hold a transport to the contract; AssertionError names the promise that it breaks."""
    keep_all(TRANSPORT_CHECKS, new_network, name)


def _on_a_network_of_its_own(check: Callable[[Cluster], None]) -> Check[NewNetwork]:
    @wraps(check)
    def run(new_network: NewNetwork) -> None:
        with closing(Cluster(new_network())) as cluster:
            check(cluster)

    return run


TRANSPORT_CHECKS: tuple[Check[NewNetwork], ...] = tuple(
    _on_a_network_of_its_own(check)
    for part in (replies, silence, documents, waiting, coming_and_going)
    for check in part.CHECKS
)
"""Each takes what makes a network, and starts its nodes on a new one."""
