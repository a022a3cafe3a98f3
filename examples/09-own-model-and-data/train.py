"""A model and data of one's own: a table of numbers, twelve workers, three of which lie.

Run it with: python examples/09-own-model-and-data/train.py
The same from a command line: garfield train --simulate --model train.py:Net --data train.py:load
"""

import torch
from torch import nn

import garfield
from garfield.data import digits


class Net(nn.Module):
    """A hidden layer of 32."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(64, 32)
        self.out = nn.Linear(32, 10)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


def load():
    """64 numbers a sample, and the class of each: to train on, and to test on."""
    data = digits()
    x, x_test = (data.images(split).reshape(-1, 64) for split in ("train", "test"))
    return x, data.labels("train"), x_test, data.labels("test")


if __name__ == "__main__":  # nodes that are processes import this file to find Net
    run = garfield.train(
        model=Net, data=load, gar="nnm+trimmed-mean", workers=12, byzantine_workers=3,
        worker_attack="little-is-enough", simulate=True, steps=100, learning_rate=0.1,
    )  # fmt: skip
    print(run.frame()[["step", "time_s", "accuracy", "loss"]].dropna().to_string(index=False))
    net = run.model()  # a Net, with what it has learned
    x, y = load()[2:]
    right = (net(torch.from_numpy(x)).argmax(1).numpy() == y).mean()
    print(f"kept in {run.directory}, final accuracy {right:.3f}")
