"""Train the small networks that judge images: ``python -m tools.train_judges DATA_DIR OUT``.

DATA_DIR holds mnist/ and fashion-mnist/ as `garfield data fetch` puts them there. OUT gets
mnist.safetensors and fashion.safetensors, weights as float16; each one's SHA-256 and its accuracy
on the 10,000 test images are printed, to be stated in garfield/fedgan/judging/shipped.py. A few
minutes of one core. Same seed, same processor, same torch: the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import torch
from safetensors.torch import save

from garfield.data import Dataset, load
from garfield.data.dataset import Split
from garfield.fedgan.judging.small_cnn import SmallCnn, accuracy, fit, fresh

SEED, EPOCHS = 0, 5


def train(data: Dataset, epochs: int = EPOCHS) -> SmallCnn:
    """The network for this data set, its weights rounded to what float16 holds."""
    model = fresh(len(data.classes), data.image, SEED)
    fit(model, *_tensors(data, "train"), epochs=epochs, seed=SEED)
    return model.half().float()


def _tensors(data: Dataset, split: Split) -> tuple[torch.Tensor, torch.Tensor]:
    pixels = torch.tensor(data.pixels(split)).reshape(-1, *data.image)
    return pixels, torch.from_numpy(data.labels(split))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--names", nargs="+", default=["mnist", "fashion"])
    settings = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order
    for name in settings.names:
        data = load(name, settings.data_dir)
        model = train(data)
        packed = save({key: value.half() for key, value in model.state_dict().items()})
        (settings.out / f"{name}.safetensors").write_bytes(packed)
        right = accuracy(model, *_tensors(data, "test"))
        print(f"{name}: {right:.4f} right, {len(packed)} bytes,")
        print(f"  SHA-256 {hashlib.sha256(packed).hexdigest()}")


if __name__ == "__main__":
    main()
