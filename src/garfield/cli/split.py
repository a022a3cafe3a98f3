"""`garfield split`: fine-tuning next to the data. Each command is imported when asked for."""

from __future__ import annotations

from cyclopts import App

app = App(name="split", help="Fine-tune on data in an object store, the first layers beside it.")

_COMMANDS = {
    "train": "Fine-tune a model on images in a store, its first layers running beside them.",
    "serve": "Run the server beside the store that computes features for many tenants.",
    "put": "Pack a folder of images into a store, shuffled, many images to an object.",
    "plan": "Show what each split would transfer and take, and which one would be chosen.",
    "demo": "Fine-tune both ways over a slow link, with a store of its own, and compare.",
}

for _name, _about in _COMMANDS.items():
    app.command(f"garfield.cli.split_{_name}:{_name}", name=_name, help=_about)
