"""One contract for every transport: a new one is tested by adding how its nodes join a network.

The checks are in `garfield.testing.transports`, which users hold their own transports to; here
they are run over ours.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest

from garfield.core.silence import NOT_NEEDED, no_answer
from garfield.testing import check_transport
from garfield.testing.network import NAMES, Network, eventually
from garfield.testing.promises import keep
from garfield.testing.transports import TRANSPORT_CHECKS
from garfield.transport.certs import load, make
from garfield.transport.connect import grpc_transport
from garfield.transport.contract import Key, WrappedTransport, first
from garfield.transport.datagrams.links import LossyLinks
from garfield.transport.datagrams.wrapper import LossyTransport
from garfield.transport.faults import Faults, LinkFault
from garfield.transport.identity import DIALS_IN, PeerAddress
from garfield.transport.simulated import Simulation


class GrpcNetwork(Network):
    """Nodes in one process that reach each other by gRPC, as if they were in many."""

    def __init__(self, directory, *, tls=False, unix=False, memory=False, links=None):
        self.book = {}
        self.links = links
        self.directory = directory
        self.unix = unix
        self.tls = tls
        self.same_host = directory / "sockets" if memory else None
        if tls:
            make(directory / "certs", dict.fromkeys(NAMES, "worker"))

    def transport(self, name):
        listen = self.book[name].address if name in self.book else "127.0.0.1:0"
        if self.unix:
            listen = f"unix:{self.directory}/{name}.sock"
        credentials = load(self.directory / "certs", name) if self.tls else None
        return grpc_transport(
            name, self.book, listen=listen, credentials=credentials, same_host=self.same_host,
            links=self.links,
        )  # fmt: skip

    def join(self, transport):
        self.book[transport.name] = PeerAddress(transport.address, "worker")


class SeenFrom(Mapping):
    """The book of a node that calls those before it, and is dialled by those after it."""

    def __init__(self, name, book):
        self.name, self.book = name, book

    def __getitem__(self, name):
        found = self.book[name]
        return found if name <= self.name else PeerAddress(DIALS_IN, found.role)

    def __iter__(self):
        return iter(self.book)

    def __len__(self):
        return len(self.book)


class LinkNetwork(GrpcNetwork):
    """Nodes that ask others over links: of every two, the later one opens them."""

    def __init__(self, directory, **how):
        super().__init__(directory, **how)
        self.made = {}

    def join(self, transport):
        """Known to all, and linked to those before it that are still there."""
        super().join(transport)
        before = [node for name, node in self.made.items() if name < transport.name]
        assert eventually(lambda: all(_is_linked(node, transport.name) for node in before))

    def transport(self, name):
        listen = self.book[name].address if name in self.book else "127.0.0.1:0"
        credentials = load(self.directory / "certs", name) if self.tls else None
        self.made[name] = grpc_transport(
            name, SeenFrom(name, self.book), listen=listen, credentials=credentials,
            takes_links=True, dials=[other for other in NAMES if other < name],
        )  # fmt: skip
        return self.made[name]


def _is_linked(node, name):
    return node._loop._closed or node._links.count(name)


class SimulatedNetwork(Network):
    """Nodes that take turns on a virtual clock; a check's parts take turns with them."""

    def __init__(self, directory):
        self.simulation = Simulation()

    def transport(self, name):
        return self.simulation.transport(name)

    def join(self, transport):
        """Known already."""

    def run(self, call):
        ends = []

        def program():
            try:
                ends.append((call(), None))
            except Exception as failure:
                ends.append((None, failure))

        self.simulation.spawn(program)
        self.simulation.run(until=lambda: ends)
        [(result, failure)] = ends
        if failure is not None:
            raise failure
        return result

    def run_together(self, calls):
        ends = []
        for call in calls:
            self.simulation.spawn(lambda call=call: ends.append(call()))
        self.simulation.run(until=lambda: len(ends) == len(calls))

    def run_later(self, delay_s, call):
        done = []
        clock, key = self.simulation.transport("clock"), Key("model", 0)

        def program():
            clock.pull(["nobody"], key, length=1, until=first(1), timeout_s=delay_s)
            done.append(call())

        self.simulation.spawn(program)
        return lambda: self.simulation.run(until=lambda: done)

    def now_s(self):
        return self.simulation.now_s


class FaultlessNetwork:
    """Any network, its nodes behind the wrapper that could break links, and does not."""

    def __init__(self, network, directory):
        self.network = network(directory)
        self.faults = Faults([LinkFault("drop", "*", "*", range(0))])

    def transport(self, name):
        return self.faults.around(self.network.transport(name))

    def __getattr__(self, name):
        return getattr(self.network, name)


class LosslessNetwork(SimulatedNetwork):
    """Simulated nodes behind links that could lose parts of a row, and lose none."""

    def transport(self, name):
        return LossyTransport(super().transport(name), DATAGRAMS)


DATAGRAMS = LossyLinks(frozenset(NAMES), frozenset(NAMES), models=True)  # on all links, none lost
BY_UDP = partial(GrpcNetwork, links=DATAGRAMS)

NETWORKS = {
    "grpc": GrpcNetwork,
    "grpc-tls": partial(GrpcNetwork, tls=True),
    "grpc-unix": partial(GrpcNetwork, unix=True),
    "grpc-memory": partial(GrpcNetwork, memory=True),
    "grpc-tls-memory": partial(GrpcNetwork, tls=True, memory=True),
    "grpc-faultless": partial(FaultlessNetwork, GrpcNetwork),
    "links": LinkNetwork,
    "links-tls": partial(LinkNetwork, tls=True),
    "udp": BY_UDP,
    "udp-tls-unix": partial(BY_UDP, tls=True, unix=True),
    "udp-memory": partial(BY_UDP, memory=True),
    "simulated": SimulatedNetwork,
    "simulated-lossless": LosslessNetwork,
    "simulated-faultless": partial(FaultlessNetwork, SimulatedNetwork),
}


HEAVY = {
    "grpc-tls",
    "grpc-tls-memory",
    "grpc-unix",
    "grpc-faultless",
    "udp-tls-unix",
    "udp-memory",
    "links",
    "links-tls",
}  # what they have, others of `make test` have too


def _marked(network):
    if network.startswith("simulated"):
        return network
    return pytest.param(network, marks=pytest.mark.heavy if network in HEAVY else pytest.mark.slow)


@pytest.mark.parametrize("network", [_marked(network) for network in NETWORKS])
@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
def test_every_transport_keeps_the_promise(check, network, tmp_path):
    keep(check, partial(NETWORKS[network], tmp_path), network)


# -- transports that break one promise ------------------------------------------------------------


class Blaming(WrappedTransport):
    """Says of those who were not needed that they were silent for good."""

    def pull(self, peers, key, **how):
        replies = super().pull(peers, key, **how)
        silent = {n: no_answer(1) if w == NOT_NEEDED else w for n, w in replies.silent.items()}
        return replace(replies, silent=silent)


class Forgetful(WrappedTransport):
    """Counts nothing that it sends."""

    bytes_sent = 0


@pytest.mark.parametrize(
    ("broken", "promise"),
    [(Blaming, "the others are not waited for, nor blamed"), (Forgetful, "are counted where")],
)
def test_a_transport_that_breaks_a_promise_is_told_which(broken, promise, tmp_path, monkeypatch):
    monkeypatch.setattr("garfield.testing.network.MOMENT_S", 0.5)  # on a virtual clock nothing lags

    class Broken(SimulatedNetwork):
        def transport(self, name):
            return broken(super().transport(name))

    with pytest.raises(AssertionError, match=f"mine breaks a promise: .*{promise}"):
        check_transport(partial(Broken, tmp_path), "mine")
