"""Servers of a split training that are not there, for tests of who asks them for what."""

from types import SimpleNamespace

from garfield.core.errors import SplitError


class PretendedServers:
    """A link of so many bits a second, and servers with these loads; they time nothing."""

    urls = ("http://127.0.0.1:1",)

    def __init__(self, bps=1e9, loads=(), connections=4, seconds=None):
        self.bps, self.loads, self.connections, self.seconds = bps, loads, connections, seconds
        self.probes, self.extracted, self.opened = 0, [], []

    def probe(self, burst, count):
        self.probes += 1
        if self.bps is None:
            raise SplitError("The link is cut.")
        return 8 * count / self.bps

    def statuses(self):
        return [{"load": load} for load in self.loads]

    def status(self):
        return self.statuses()[0] if self.loads else {}

    def post(self, path, body, access):
        raise SplitError(f"Nobody answers {path}.")

    def extract(self, request, access, shape, count):
        if self.seconds is None:
            raise SplitError("Nobody extracts.")
        self.extracted.append(count)
        return SimpleNamespace(trailer={"seconds": self.seconds})

    def with_connections(self, connections):
        other = PretendedServers(self.bps, self.loads, connections, self.seconds)
        other.extracted = self.extracted
        self.opened.append(connections)
        return other

    def close(self):
        pass
