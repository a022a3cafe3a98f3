"""Both ways side by side, on one machine: a store, a slow link, a server beside the store.

    store ──────── server          fast, as within a data centre
      └── link ──────┴── client    so many bits a second, shared by all that crosses it

The store is a real OpenStack Swift on loopback, or plain files where that cannot start. Images
are real, and so are the pretrained weights. First plain fine-tuning streams the images over the
link, then a split sends features, then a split keeps them; one core for each side.
"""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from garfield.core.bounds import Seed, Within
from garfield.core.config import check_numbers
from garfield.core.errors import ConfigError, GarfieldError, NodeFailed
from garfield.core.events import Sink
from garfield.report.split_summary import split_summary
from garfield.runs.run_directory import RunDirectory
from garfield.split.client.bandwidth import parse_bandwidth
from garfield.split.limited_link import LimitedLink, LinkedStore
from garfield.split.settings import FineTuning, Loading
from garfield.split.stores.settings import StoreSettings

STOP_S = 20.0
_LISTENING = re.compile(r"Listening at (\S+),")


@dataclass(frozen=True)
class DemoSettings:
    """What to show."""

    images: str | None = None
    """A folder of yours with a subfolder of images for each class. (clothes of Fashion-MNIST, which
    come with the library, enlarged)"""
    count: Annotated[int, Within(40, 2500)] = 240
    """How many of the library's images."""
    stored_as: str = "uint8"
    """How they are stored: jpeg, uint8 or float32."""
    link: str = "10Mbps"
    """What crosses the link between store and client."""
    epochs: Annotated[int, Within(1)] = 2
    """How often all samples are trained on, in each run."""
    batch: Annotated[int, Within(1)] = 40
    """Samples in a training batch."""
    store: str = "auto"
    """What holds the images: swift, files, or auto for the first of these that starts."""
    seed: Seed = 0
    """Fixes all randomness."""

    def __post_init__(self) -> None:
        check_numbers(self)
        parse_bandwidth(self.link)
        if self.store not in ("auto", "swift", "files"):
            raise ConfigError(f"store must be auto, swift or files, got {self.store!r}.")


@dataclass(frozen=True)
class World:
    """A store with images, and a server beside it, both behind a slow link."""

    kind: str
    """swift or files."""
    data: str
    settings: StoreSettings
    """How the client reaches the store."""
    server: str
    link: LimitedLink
    note: str = ""
    """Why it is not the store that was hoped for."""


@dataclass(frozen=True)
class DemoResult:
    """The summaries of the runs, by what they show."""

    store: str
    note: str
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def run_demo(settings: DemoSettings, directory: Path, tell: Sink) -> DemoResult:
    """Set everything up, train three times, and leave the runs in the directory."""
    import torch

    torch.set_num_threads(1)  # one core for each side
    with _world(settings, directory, tell) as world:
        base = FineTuning(
            data=world.data, model="efficientnet_lite0", batch=settings.batch,
            epochs=settings.epochs, lr=0.02, holdout=1, store=world.settings,
            server=(world.server,),
        )  # fmt: skip
        seeded = Loading(seed=settings.seed, chunk=settings.batch)
        kept = str(directory / "kept-features")
        ways = {
            "plain: images travel": replace(seeded, baseline=True),
            "split: features travel": seeded,
            "split, features kept": replace(seeded, cache=kept),
        }
        runs = {}
        for number, (name, loading) in enumerate(ways.items()):
            tell({"event": "run", "name": name, "number": number, "of": len(ways)})
            folder = re.sub(r"[^a-z]+", "-", name.partition(":")[0])
            run = RunDirectory(directory / f"{number + 1}-{folder}")
            runs[name] = _trained(replace(base, loading=loading), run, world, tell)
    return DemoResult(world.kind, world.note, runs)


def _trained(
    settings: FineTuning, run: RunDirectory, world: World, tell: Sink
) -> Mapping[str, Any]:
    from garfield.split.client.data_set import DataSet
    from garfield.split.training import fine_tune

    def opened(url: str) -> DataSet:
        data = DataSet.open(url, settings.store)
        if world.kind == "files":  # files are not behind any link unless one is put there
            data = replace(data, store=LinkedStore(data.store, world.link))
        return data

    fine_tune(settings, run, tell, opened=opened)
    summary = split_summary(run.events())
    run.write_summary(summary)
    return summary


@contextmanager
def _world(settings: DemoSettings, directory: Path, tell: Sink) -> Iterator[World]:
    """Start store, link and server, and put the images in."""
    with ExitStack() as stack:
        link = stack.enter_context(LimitedLink(parse_bandwidth(settings.link)))
        tell({"event": "setting up", "what": "the store"})
        store = _store(settings, directory, link, stack)
        tell({"event": "setting up", "what": "images"})
        _put_images(settings, directory, store)
        tell({"event": "setting up", "what": "the server"})
        near = stack.enter_context(_server(store.serve_flags))
        parts = urlsplit(near)
        far = f"http://127.0.0.1:{link.to(str(parts.hostname), int(parts.port or 80))}"
        yield World(store.kind, store.data, store.over_link, far, link, store.note)


@dataclass(frozen=True)
class _Store:
    kind: str
    data: str
    direct: StoreSettings
    """How to reach it from beside it."""
    over_link: StoreSettings
    """How the client reaches it."""
    serve_flags: tuple[str, ...]
    """What a server beside it is started with."""
    note: str = ""


def _store(settings: DemoSettings, directory: Path, link: LimitedLink, stack: ExitStack) -> _Store:
    note = ""
    if settings.store != "files":
        try:
            return _swift(directory, link, stack)
        except (GarfieldError, OSError) as problem:
            if settings.store == "swift":
                raise
            note = f"Swift cannot start here, so plain files hold the images. {problem}"
    return replace(_files(directory), note=note)


def _swift(directory: Path, link: LimitedLink, stack: ExitStack) -> _Store:
    from garfield.split.embedded.swift import EmbeddedSwift

    swift = stack.enter_context(EmbeddedSwift(directory / "swift"))
    near = swift.settings("alice")
    parts = urlsplit(swift.endpoint)
    port = link.to(str(parts.hostname), int(parts.port or 80))
    far = replace(near, swift_auth_url=f"http://127.0.0.1:{port}/auth/v1.0")
    flags = ("--store", "swift://", "--swift-endpoint", swift.endpoint)
    return _Store("swift", "swift://demo/clothes", near, far, flags)


def _files(directory: Path) -> _Store:
    from garfield.split.stores.files import write_tokens

    root, token = (directory / "files").absolute(), secrets.token_hex(16)
    root.mkdir(parents=True)
    write_tokens(directory / "tokens.json", {token: ["."]})
    ours = StoreSettings(file_token=token)
    tokens = str((directory / "tokens.json").absolute())
    flags = ("--store", f"file://{root}", "--file-tokens", tokens)
    return _Store("files", f"file://{root}/clothes", ours, ours, flags)


def _put_images(settings: DemoSettings, directory: Path, store: _Store) -> None:
    from garfield.split.demo_images import write_clothes
    from garfield.split.putting import PutSettings, put

    folder = Path(settings.images) if settings.images else directory / "images"
    if settings.images is None:
        write_clothes(folder, settings.count)
    packing = PutSettings(
        to=store.data, stored_as=settings.stored_as, images_per_object=settings.batch, side=224,
        seed=settings.seed, connection=store.direct,
    )  # fmt: skip
    put(folder, packing)


@contextmanager
def _server(flags: tuple[str, ...]) -> Iterator[str]:
    """A server in a process of its own; where it listens."""
    words = [sys.executable, "-m", "garfield", "split", "serve", "--port", "0", *flags]
    process = subprocess.Popen(
        [*words, "--workers", "2", "--budget", "2GiB"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = _LISTENING.search(line)
        if found is None:
            raise NodeFailed(f"The server beside the store did not start. {line.strip()}")
        yield found[1]
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout and process.stdout.close()
