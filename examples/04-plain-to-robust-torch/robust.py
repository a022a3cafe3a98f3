"""Train a small network on images of clothes: alone (plain.py), or as peers (robust.py)."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from garfield import run_as_peers
from garfield.data import load


def images(split):
    data = load("fashion-small")
    return TensorDataset(torch.from_numpy(data.images(split)), torch.from_numpy(data.labels(split)))


def accuracy(model):
    x, y = images("test").tensors
    with torch.no_grad():
        return (model(x).argmax(dim=1) == y).float().mean().item()


def main(peer):
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(400, 10),
    )  # fmt: skip
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    peer.robust(model, optimizer, gar="multi-krum", f=1)
    loader = DataLoader(peer.share(images("train")), batch_size=32, shuffle=True)
    for epoch in range(6):
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        print(f"epoch {epoch}: accuracy {accuracy(model):.3f}")
    print(f"final accuracy {accuracy(model):.3f}")


if __name__ == "__main__":
    run_as_peers(main, 6, liars={5: "reverse"})
