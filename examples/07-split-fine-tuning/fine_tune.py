"""Fine-tuning next to the data, in a loop of your own.

A pretrained EfficientNet-Lite0 learns to tell clothes apart. Its frozen layers run in a server
beside the store; only the last layer trains here. The store is a folder, so that nothing but
this file is needed; with Swift or S3 the URL is another, and the server another machine.

Run it with: python examples/07-split-fine-tuning/fine_tune.py
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from garfield.data import fashion_small
from garfield.split.client.loader import SplitLoader
from garfield.split.objects import Kind
from garfield.split.objects.packing import Packing, put_arrays
from garfield.split.server.serving import running_server
from garfield.split.server.settings import ServeSettings
from garfield.split.settings import Loading
from garfield.split.stores import StoreSettings, open_store
from garfield.split.stores.files import write_tokens

TRANSFORMS = "resize(96), crop(96), normalise(lite)"
TOKEN = "only-for-this-example"


def put(url, images, labels, classes):
    larger = images.repeat(4, axis=1).repeat(4, axis=2)
    colour = np.repeat(larger[..., None], 3, axis=3)  # (count, 112, 112, 3)
    packing = Packing(kind=Kind.UINT8, images_per_object=50)
    put_arrays(open_store(url), colour, labels, classes, packing)


def main(root):
    data = fashion_small()
    train, test = f"file://{root}/train", f"file://{root}/test"
    put(train, data.x_train[:600], data.y_train[:600], data.classes)
    put(test, data.x_test[:200], data.y_test[:200], data.classes)

    write_tokens(root / "tokens.json", {TOKEN: ["."]})  # who may read what
    beside = StoreSettings(file_tokens=str(root / "tokens.json"))
    ours = StoreSettings(file_token=TOKEN)
    loading = Loading(transforms=TRANSFORMS, cache=str(root / "cache"))
    with (
        running_server(ServeSettings(store=f"file://{root}", port=0, connection=beside)) as server,
        SplitLoader.open(
            train, "efficientnet_lite0", batch=100, server=[server.url], loading=loading, store=ours
        ) as loader,
    ):
        optimizer = torch.optim.Adam(loader.tail.trained.parameters(), lr=0.005)
        while loader.epoch < 5:
            for features, labels in loader:
                loss = cross_entropy(loader.tail(features), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            received = loader.traffic.received_bytes
            print(f"epoch {loader.epoch}: split {loader.split}, loss {loss:.3f}, {received} bytes")
        judged = loader.over(type(loader.data).open(test, ours))
        judged.tail.eval()
        with torch.no_grad():
            right = sum(int((judged.tail(x).argmax(1) == y).sum()) for x, y in judged)
        print(f"final accuracy {right / 200:.3f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
