"""Who may hold a connection, and for how long: known peers have their share, strangers none of it.

gRPC accepts a connection before anybody can know whose it is: the certificate
comes later, and is shown to us with a call. So connections are looked at from
beside, a few times a second, and the data path pays nothing: of all sockets of
this process, those that were accepted on the port are told apart by their far
end, and a call that has been identified gives its connection a name. Without
one, a connection is a stranger's, whatever it has said or not said:

- a stranger has `STRANGER_S` to become known, idle or not;
- strangers may hold half of what the process can hold; of more, those go whose
  host holds most, the oldest first;
- a known peer may hold `SHARE`, and keeps the newest: its older ones may be left
  from before it was restarted. Nobody else's are ended for its sake.

Ending one is a shutdown of the socket, which gRPC takes for a peer that has left.

What this cannot do: between two looks strangers may fill what gRPC accepts, so
whoever opens tens of thousands a second keeps newcomers out while it does; nor
does it spare the processor a handshake for each connection that is opened anew.
That is a flood, and for a firewall. A unix socket is for its directory's owners
to guard, and not looked at.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import stat
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from garfield.transport.grpc.origin import Address, Origin, origin, plain

SHARE = 4
"""Connections that a known peer may hold. It needs one; after it was cut off, two."""
STRANGER_S = 3.0
"""How long a connection may be without a name. An honest peer connects in order to ask."""

_EVERY_S, _CROWDED_EVERY_S = 0.25, 0.05
_MOST = 4096  # to look at so many takes some 20 ms
_RESERVED = 256  # descriptors for our own channels, files and libraries, unless there are few
_WANTED_FILES = 1 << 16
_DESCRIPTORS = Path("/proc/self/fd" if Path("/proc/self/fd").exists() else "/dev/fd")


def allowed_connections() -> int:
    """How many connections the process can hold, once its limit on open files is raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    wanted = _WANTED_FILES if hard == infinite else min(hard, _WANTED_FILES)
    if soft != infinite and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return _MOST if soft == infinite else min(_MOST, soft - min(_RESERVED, soft // 2))


@dataclass(eq=False)
class Connection:
    """One that was accepted, and what is known of it."""

    descriptor: int
    inode: int
    """What tells it from a later one with the same descriptor."""
    far_end: Origin
    name: str | None = None
    """Whose it is, once a call on it was identified."""
    unknown_s: float = 0.0
    """How long it was seen without a name."""


def surplus(connections: Iterable[Connection], strangers_allowed: int) -> list[Connection]:
    """Those to end, of connections in the order in which they came."""
    of_peers: dict[str, list[Connection]] = defaultdict(list)
    of_hosts: dict[Address, list[Connection]] = defaultdict(list)
    ending = []
    for each in connections:
        if each.name is not None:
            of_peers[each.name].append(each)
        elif each.unknown_s > STRANGER_S:
            ending.append(each)
        else:
            of_hosts[each.far_end.host].append(each)
    for held in of_peers.values():
        ending += held[:-SHARE]
    ranked = [
        (place, each)  # how many newer ones its host holds besides
        for held in of_hosts.values()
        for place, each in enumerate(reversed(held))
    ]
    ranked.sort(key=lambda pair: pair[0])
    return ending + [each for _, each in ranked[strangers_allowed:]]


class Connections:
    """The connections that were accepted on one port. All runs on the transport's loop."""

    def __init__(self, allowed: int) -> None:
        self._strangers_allowed = allowed // 2
        self._seen: dict[tuple[int, int], Connection | None] = {}
        """Sockets by descriptor and inode, in the order in which they came; None: not accepted."""
        self._heard: dict[str, str] = {}
        self._looked_s: float | None = None

    def identified(self, peer: str, name: str) -> None:
        """Note whose a connection is: a call came on it."""
        self._heard[peer] = name

    async def watch(self, port: int) -> None:
        """End what is too much, until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            began_s = clock()
            crowded = self.look(port, began_s) > self._strangers_allowed // 2
            least_s = _CROWDED_EVERY_S if crowded else _EVERY_S
            await asyncio.sleep(max(least_s, 4 * (clock() - began_s)))  # others have work to do

    def look(self, port: int, now_s: float) -> int:
        """End what is too much now; how many strangers there were."""
        elapsed_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        heard, self._heard = self._heard, {}
        names = {origin(peer): name for peer, name in heard.items()}
        accepted = self._accepted(port)
        for each in accepted:
            each.name = names.get(each.far_end, each.name)
            # while this loop stood still, nobody could be heard
            each.unknown_s += min(elapsed_s, 2 * _EVERY_S)
        for each in surplus(accepted, self._strangers_allowed):
            _end(each)
        return sum(each.name is None for each in accepted)

    def _accepted(self, port: int) -> list[Connection]:
        sockets = dict.fromkeys(_sockets())
        self._seen = {key: known for key, known in self._seen.items() if key in sockets}
        for key in sockets:
            if key not in self._seen:
                self._seen[key] = _accepted_on(port, *key)
        return [each for each in self._seen.values() if each is not None]


def _sockets() -> Iterable[tuple[int, int]]:
    """Descriptor and inode of every socket of this process."""
    try:
        listed = os.listdir(_DESCRIPTORS)
    except OSError:  # no such list on this system, or no descriptor left to read it with
        return
    for descriptor in map(int, listed):
        try:
            about = os.fstat(descriptor)
        except OSError:  # the one that listed them
            continue
        if stat.S_ISSOCK(about.st_mode):
            yield descriptor, about.st_ino


def _accepted_on(port: int, descriptor: int, inode: int) -> Connection | None:
    """The connection behind a descriptor; None for a socket that was not accepted on the port."""
    with suppress(OSError, ValueError), socket.socket(fileno=os.dup(descriptor)) as found:
        if found.family in (socket.AF_INET, socket.AF_INET6) and found.getsockname()[1] == port:
            host, far_port = found.getpeername()[:2]
            return Connection(descriptor, inode, Origin(plain(host), far_port))
    return None


def _end(connection: Connection) -> None:
    """Shut a connection down, unless its descriptor is another's by now."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.descriptor)) as found:
        if os.fstat(found.fileno()).st_ino == connection.inode:
            found.shutdown(socket.SHUT_RDWR)
