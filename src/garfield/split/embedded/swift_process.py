"""One server of an embedded Swift, as a supervised process; and what its configuration names.

swift and eventlet are imported here alone, and only in that process: eventlet changes sockets
and threads for all of the process it is in.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from garfield.runs.supervised import Channel

STARTING_S = 300.0


def serve_role(channel: Channel, role: str, directory: str, host: str) -> None:
    """Listen, tell the port, wait for the configuration to be there, and serve until the end."""
    may_go_on = threading.Event()
    channel.listen(lambda message: may_go_on.set())
    os.environ["EVENTLET_NO_GREENDNS"] = "yes"  # names are numbers here, and it imports much
    _send_errors_to(Path(directory) / "logs" / f"{role}.err")
    import eventlet

    listener = eventlet.listen((host, 0), backlog=1024)
    channel.send({"event": "listening", "port": listener.getsockname()[1]})
    if not may_go_on.wait(STARTING_S):
        raise TimeoutError(f"{role} was not told to go on in {STARTING_S:g} s.")

    from swift.common import utils

    # storage policies are read from there while swift.common.wsgi is imported
    utils.SWIFT_CONF_FILE = str(Path(directory) / "swift.conf")
    from swift.common import wsgi

    # as swift's own: no exception out of a greenlet that happens to run
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    conf, logger, global_conf, _ = wsgi.check_config(
        str(Path(directory) / f"{role}.conf"), f"{role}-server"
    )
    wsgi.run_server(
        conf,
        logger,
        listener,
        global_conf=global_conf,
        ready_callback=lambda: channel.send({"event": "ready"}),
    )


def _send_errors_to(path: Path) -> None:
    """Keep what eventlet and Swift say on standard error (of deprecation, mostly) in a file."""
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)


def log_to_file(
    conf: Mapping[str, str],
    name: str,
    log_to_console: bool,
    log_route: str,
    fmt: str,
    logger: logging.Logger,
    adapted_logger: Any,
) -> None:
    """Write what Swift logs into the file that its configuration names (a handler of Swift's)."""
    path = conf.get("garfield_log")
    if path and not any(isinstance(each, logging.FileHandler) for each in logger.handlers):
        logger.handlers.clear()  # the one for syslog
        handler = logging.FileHandler(path)
        handler.setFormatter(logging.Formatter("%(asctime)s " + fmt))
        logger.addHandler(handler)


class LocalCache:
    """What Swift keeps in memcached, in the proxy's own memory: it is one process, alone."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Any, float]] = {}

    def get(self, key: str, raise_on_error: bool = False) -> Any:
        value, until = self._held.get(key, (None, 0.0))
        if until and until < time.monotonic():
            self._held.pop(key, None)
            return None
        return value

    def set(self, key: str, value: Any, *_: Any, time: float = 0, **__: Any) -> None:
        self._held[key] = (value, _until(time))

    def delete(self, key: str, *_: Any, **__: Any) -> None:
        self._held.pop(key, None)

    def incr(self, key: str, delta: int = 1, time: float = 0) -> int:
        value = max(0, int(self.get(key) or 0) + int(delta))
        self._held[key] = (value, _until(time))
        return value

    def decr(self, key: str, delta: int = 1, time: float = 0) -> int:
        return self.incr(key, -int(delta), time)

    def set_multi(self, mapping: Mapping[str, Any], *_: Any, time: float = 0, **__: Any) -> None:
        for key, value in mapping.items():
            self._held[key] = (value, _until(time))

    def get_multi(self, keys: Iterable[str], *_: Any, **__: Any) -> list[Any]:
        return [self.get(key) for key in keys]


def local_cache(global_conf: Mapping[str, str], **local_conf: str) -> Callable[[Any], Any]:
    """A paste filter factory, in place of Swift's own that speaks to memcached."""
    cache = LocalCache()

    def wrapped(app: Any) -> Any:
        def call(environ: dict[str, Any], start_response: Any) -> Any:
            environ["swift.cache"] = cache
            return app(environ, start_response)

        return call

    return wrapped


def _until(seconds: float) -> float:
    return time.monotonic() + seconds if seconds else 0.0


if __name__ == "__main__":
    sys.exit("Start it through garfield.split.embedded.EmbeddedSwift.")
