"""Small packed data sets of real images, and servers beside them, for tests of split training."""

import hashlib
from contextlib import contextmanager

import numpy as np

from garfield.data import fashion_small
from garfield.split.client.servers import Servers, ServerSettings
from garfield.split.objects import Index, ObjectEntry, pack
from garfield.split.objects.index import INDEX_NAME
from garfield.split.server.serving import running_server
from garfield.split.server.settings import ServeSettings
from garfield.split.stores import StoreSettings, open_store
from garfield.split.stores.files import write_tokens

TOKEN = "the-token-of-a-tenant"
SMALL = "resize(40), crop(32), normalise(imagenet)"
RANDOM = "resize(40), random-crop(32), flip, normalise(imagenet)"


def clothes(count, side=40):
    """(count, side, side, 3) uint8, and labels: Fashion-MNIST, enlarged by repetition."""
    data = fashion_small()
    rows = np.linspace(0, 27.99, side).astype(int)
    pixels = data.x_train[:count][:, rows][:, :, rows]
    return np.repeat(pixels[..., None], 3, axis=3), [int(label) for label in data.y_train[:count]]


def put_clothes(folder, counts=(12, 7, 15, 9), kind="uint8", first=0):
    """A data set in a folder, objects of these sizes; its URL."""
    folder.mkdir(parents=True, exist_ok=True)
    put_in(open_store(f"file://{folder}"), counts, kind, first)
    return f"file://{folder}"


def put_in(store, counts, kind="jpeg", first=0):
    """The same in any store: objects named part-000 and so on, and their index."""
    images, labels = clothes(first + sum(counts))
    images, labels = images[first:], labels[first:]
    entries, at = [], 0
    for number, count in enumerate(counts):
        data = pack(list(images[at : at + count]), labels[at : at + count], kind)
        name = f"part-{number:03}"
        store.put(name, data)
        entries.append(ObjectEntry(name, count, len(data), hashlib.sha256(data).hexdigest()))
        at += count
    classes = tuple(f"class-{label}" for label in range(10))
    store.put(INDEX_NAME, Index(kind, classes, tuple(entries)).to_json().encode())


def ours():
    """What a client of a server of files needs."""
    return StoreSettings(file_token=TOKEN)


def serving(root, **more):
    """Settings of a server of the files below a folder, which our token may read."""
    write_tokens(root / "tokens.json", {TOKEN: ["."]})
    connection = StoreSettings(file_tokens=str(root / "tokens.json"))
    given = {"port": 0, "workers": 2, "budget": "3GiB"} | more
    return ServeSettings(store=f"file://{root}", connection=connection, **given)


@contextmanager
def server_of(root, **more):
    """The URL of a running server of the files below a folder."""
    with running_server(serving(root, **more)) as server:
        yield server.url


@contextmanager
def talking(*urls, **more):
    """The client's side of servers."""
    servers = Servers(urls, ServerSettings(**more))
    try:
        yield servers
    finally:
        servers.close()
