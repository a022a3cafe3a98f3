"""Run an embedded Swift until it is told to end: `python -m garfield.split.embedded DIRECTORY`.

One line of JSON says where it listens and who its users are; for scripts that put the store
into a network namespace of its own.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from garfield.core.errors import GarfieldError
from garfield.core.files import as_json
from garfield.split.embedded.swift import EmbeddedSwift


def main(arguments: list[str]) -> int:
    """Start, tell, and wait for SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m garfield.split.embedded")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at")
    parser.add_argument("--users", nargs="+", default=["alice", "bob"])
    given = parser.parse_args(arguments)
    wanted = {signal.SIGTERM, signal.SIGINT}
    try:
        with EmbeddedSwift(given.directory, host=given.host, users=tuple(given.users)) as swift:
            # the servers have been forked: what they do with signals is their own affair
            signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
            users = {name: {"login": u.login, "key": u.key} for name, u in swift.users.items()}
            told = {"endpoint": swift.endpoint, "auth_url": swift.auth_url, "users": users}
            sys.stdout.write(as_json(told) + "\n")
            sys.stdout.flush()
            signal.sigwait(wanted)
    except GarfieldError as problem:
        sys.stderr.write(f"{problem}\n")
        return problem.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
