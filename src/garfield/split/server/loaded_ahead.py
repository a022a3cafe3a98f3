"""What the process that workers are forked from loads and touches, so that they share it.

Only what starts no thread: models without memory, and Python's own objects. A worker's own
memory fell from 46 MiB to 14–26 with it: torch imports 39 MiB of decompositions when a tensor
without memory first becomes one with.
"""

from __future__ import annotations

import PIL.JpegImagePlugin  # noqa: F401

import garfield.split.models.graph
import garfield.split.models.weights
import garfield.split.objects
import garfield.split.server.worker_training
import garfield.split.stores.files
import garfield.split.transforms  # noqa: F401
from garfield.split.models import SPLIT_MODELS, empty_prefix

for _name in SPLIT_MODELS:
    empty_prefix(_name, 1).to_empty(device="cpu")
