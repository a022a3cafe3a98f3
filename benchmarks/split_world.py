"""A real Swift with images in it and a split server, beside each other at the far end of a link.

    with split_world(folder, images=512, per_object=32, stored_as=["uint8"]) as world:
        world.network.limit(50)
        client = Popen([*world.network.beside_client, sys.executable, …], env=world.environment)

Both run in the store's network namespace on one core, the client's side has another core; both
end with the context. Images of clothes lie at `swift://<stored as>/clothes`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.split_network import STORE, LimitedNetwork
from garfield.core.errors import RunError
from garfield.split.demo_images import write_clothes


@dataclass(frozen=True)
class SplitWorld:
    """What a client needs to know."""

    network: LimitedNetwork
    environment: dict[str, str]
    """With what a client needs to log in at the store, by its own API or by S3's."""
    server: str
    """The address of the split server."""

    @staticmethod
    def data(stored_as: str) -> str:
        """Where the images stored so are."""
        return f"swift://{stored_as}/clothes"


@contextmanager
def split_world(
    folder: Path, *, images: int, per_object: int, stored_as: Sequence[str]
) -> Iterator[SplitWorld]:
    """Start all of it, put the images into the store once for each way to store them."""
    pictures = folder / "images"
    write_clothes(pictures, images)
    cores = (0, (os.cpu_count() or 1) - 1)
    with _ended_in_order(), LimitedNetwork(1000, cores=cores) as network:
        swift = [sys.executable, "-m", "garfield.split.embedded", str(folder / "swift")]
        with started([*network.beside_store, *swift, "--host", STORE], dict(os.environ)) as line:
            told = json.loads(line)
            user = told["users"]["alice"]
            environment = os.environ | {
                "ST_AUTH": told["auth_url"], "ST_USER": user["login"], "ST_KEY": user["key"],
                "S3_ENDPOINT": told["endpoint"], "S3_KEY": user["login"], "S3_SECRET": user["key"],
            }  # fmt: skip
            for kind in stored_as:
                words = [
                    "-m", "garfield", "split", "put", str(pictures), "--plain-http",
                    "--to", SplitWorld.data(kind), "--stored-as", kind,
                    "--side", "224", "--images-per-object", str(per_object),
                ]  # fmt: skip
                checked([*network.beside_store, sys.executable, *words], environment)
            serve = [
                sys.executable, "-m", "garfield", "split", "serve", "--store", "swift://",
                "--host", STORE, "--port", "0", "--listen-plain-http", "--plain-http",
                "--swift-endpoint", told["endpoint"], "--workers", "2", "--budget", "4GiB",
            ]  # fmt: skip
            with started([*network.beside_store, *serve], dict(os.environ)) as line:
                found = re.search(r"Listening at (\S+),", line)
                if found is None:
                    raise RunError(f"The server did not start: {line}")
                yield SplitWorld(network, environment, found[1])


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Take SIGTERM for Ctrl-C meanwhile, or servers and namespaces would stay behind."""

    def interrupted(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def started(words: list[str], environment: dict[str, str]) -> Iterator[str]:
    """A process that says a line when it is ready.

    In a process group of its own: Ctrl-C is for us, who end it afterwards.
    """
    process = subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, text=True, process_group=0
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def checked(words: list[str], environment: dict[str, str]) -> str:
    """What a command prints; RunError with its last words if it fails."""
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"{' '.join(words[-8:])} failed: {done.stderr[-500:]}")
    return done.stdout
