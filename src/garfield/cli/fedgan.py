"""`garfield fedgan`: GANs on divided data. Each command is imported when asked for."""

from __future__ import annotations

from cyclopts import App

app = App(name="fedgan", help="Train a GAN on data that never leaves its devices.")

_COMMANDS = {
    "train": "Train a GAN on images divided among many devices.",
    "device": "Take part in a training with images that stay on this machine.",
    "serve": "Wait to lead a training, and lead it when its server is gone.",
    "sample": "Draw images from the generator of a run.",
    "demo": "Train four times on skewed data: sampling and weights on and off, with pictures.",
}

for _name, _about in _COMMANDS.items():
    app.command(f"garfield.cli.fedgan_{_name}:{_name}", name=_name, help=_about)
