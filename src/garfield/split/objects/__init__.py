"""What lies in the store: packed objects, WebDataset's shards, and the index that names them."""

from __future__ import annotations

from garfield.split.objects.format import Images, Kind, PackedObject, pack
from garfield.split.objects.index import INDEX_NAME, Index, ObjectEntry, read_index
from garfield.split.objects.opened import StoredObject, open_object
from garfield.split.objects.webdataset import TarShard

__all__ = [
    "INDEX_NAME",
    "Images",
    "Index",
    "Kind",
    "ObjectEntry",
    "PackedObject",
    "StoredObject",
    "TarShard",
    "open_object",
    "pack",
    "read_index",
]
