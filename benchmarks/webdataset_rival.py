"""Plain fine-tuning by WebDataset's own loader, from tar shards in the store's S3: a rival.

    python -m benchmarks.webdataset_rival pack  SWIFT_URL S3_URL
    python -m benchmarks.webdataset_rival train S3_URL MODEL BATCH ITERATIONS LEAST_S IMAGES

`pack`, beside the store and once, writes the images of a packed data set, as they are stored,
into shards of as many images as an object has, with WebDataset's writer. `train`, at the client,
reads them as WebDataset's documentation does from S3 without keys in the loader: presigned
addresses, a process that fetches by curl and decodes ahead of training. Model, transforms, loss
and optimizer are those of `garfield split train --baseline`, the frozen layers 50 samples at a
time. Its bytes are those of the shards that were read, not counted on the way. Keys come from the
environment (S3_ENDPOINT, S3_KEY, S3_SECRET).
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from typing import Any

import numpy as np

from garfield.split.client.data_set import DataSet
from garfield.split.objects import Kind, PackedObject
from garfield.split.stores import StoreSettings, open_store

CHUNK = 50  # samples at a time through the frozen layers, as the better of the plain ways has it


def s3_settings() -> StoreSettings:
    """How to reach the store's S3, from the environment."""
    return StoreSettings(
        s3_endpoint=os.environ["S3_ENDPOINT"],
        s3_access_key=os.environ["S3_KEY"],
        s3_secret_key=os.environ["S3_SECRET"],
        plain_http=True,
    )


def pack(source: str, target: str) -> None:
    """Write every object of a packed data set as a tar shard."""
    import webdataset as wds

    data = DataSet.open(source, StoreSettings(plain_http=True))
    # by Swift's own API, which makes the container; its S3 API then shows it as a bucket
    store = open_store(target.replace("s3://", "swift://"), settings=StoreSettings(plain_http=True))
    for number, entry in enumerate(data.objects):
        held = data.parsed(number, data.store.get(entry.name))
        assert isinstance(held, PackedObject)
        out = io.BytesIO()
        with wds.TarWriter(out, encoder=True) as shard:
            for index in range(held.count):
                sample: dict[str, Any] = {"__key__": f"{number:05}-{index:05}"}
                if held.kind is Kind.JPEG:
                    sample["jpg"] = held.encoded(index)
                else:
                    sample["npy"] = np.asarray(held.images([index])[0])
                shard.write({**sample, "cls": int(held.labels[index])})
        store.put(f"{number:05}.tar", out.getvalue())


def train(
    source: str, model_name: str, batch: int, iterations: int, least_s: int, images_in_all: int
) -> dict[str, Any]:
    """Fine-tune; seconds of each iteration but the first two, and bytes of one."""
    import torch
    import webdataset as wds
    from torch.nn import functional

    from garfield.split.client.loader import default_transforms
    from garfield.split.models import load
    from garfield.split.transforms import Transforms

    torch.set_num_threads(1)
    store = open_store(source, settings=s3_settings())
    shards = [name for name in store.names() if name.endswith(".tar")]
    urls = list(store.access(shards).reads.values())
    shard_bytes = sum(store.size(name) for name in shards)
    pretrained = "pretrained" if model_name == "efficientnet_lite0" else None
    tail = load(model_name, pretrained, classes=10).tail(0, None, CHUNK)
    optimizer = torch.optim.SGD(tail.trained.parameters(), 0.01, 0.9)
    transforms = Transforms.parse(default_transforms(model_name))

    def transformed(sample: tuple[Any, int]) -> tuple[torch.Tensor, int]:
        image = np.asarray(sample[0])  # of bytes (height, width, 3), or of floats (3, …)
        one: Any = [image] if image.dtype == np.uint8 else image[None]
        return transforms.apply(one, [0], 0, 0)[0], sample[1]

    data = (
        wds.WebDataset(urls, shardshuffle=False)
        .decode("rgb8")
        .to_tuple("jpg;npy", "cls")
        .map(transformed)
        .repeat()
        .batched(batch)
    )
    seconds, began = [], time.monotonic()
    tail.train()
    for images, labels in wds.WebLoader(data, batch_size=None, num_workers=1):
        step = functional.cross_entropy(tail(images), torch.as_tensor(labels))
        optimizer.zero_grad()
        step.backward()
        optimizer.step()
        now = time.monotonic()
        seconds.append(now - began)
        began = now
        if len(seconds) > iterations + 1 and sum(seconds[2:]) >= least_s:
            break
    return {
        "seconds": seconds[2:],
        "bytes_per_iteration": shard_bytes / images_in_all * batch,
    }


if __name__ == "__main__":
    if sys.argv[1] == "pack":
        pack(*sys.argv[2:])
    else:
        print(json.dumps(train(sys.argv[2], sys.argv[3], *map(int, sys.argv[4:8]))))
