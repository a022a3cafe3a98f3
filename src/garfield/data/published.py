"""The files of published data sets: their addresses, and what each must be.

The sizes and SHA-256 sums are those of the files as published: MNIST as mirrored by
PyTorch and by the Common Visual Data Foundation, Fashion-MNIST in its authors'
repository, CIFAR-10's binary version on its author's page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True)
class PublishedFile:
    """One file as it must be, and where it goes."""

    path: str
    """The place below the data directory."""
    size: int
    """Its length in bytes."""
    sha256: str


@dataclass(frozen=True)
class Download:
    """One file to fetch; for an archive, what to keep of it."""

    urls: tuple[str, ...]
    """Tried in this order."""
    file: PublishedFile
    members: Mapping[str, PublishedFile] = field(default_factory=dict)
    """What to keep, by name in the archive, which is removed once that is out."""

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        """The files that are there in the end."""
        return tuple(self.members.values()) or (self.file,)

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(urlsplit(url).netloc for url in self.urls)


def _idx(folder: str, bases: tuple[str, ...], files: dict[str, tuple[int, str]]) -> list[Download]:
    return [
        Download(
            tuple(base + name for base in bases), PublishedFile(f"{folder}/{name}", size, sha256)
        )
        for name, (size, sha256) in files.items()
    ]


_MNIST = _idx(
    "mnist",
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    {
        "train-images-idx3-ubyte.gz": (
            9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        "train-labels-idx1-ubyte.gz": (
            28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        "t10k-images-idx3-ubyte.gz": (
            1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        "t10k-labels-idx1-ubyte.gz": (
            4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    },
)  # fmt: skip

_FASHION = _idx(
    "fashion-mnist",
    ("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",),
    {
        "train-images-idx3-ubyte.gz": (
            26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        "train-labels-idx1-ubyte.gz": (
            29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        "t10k-images-idx3-ubyte.gz": (
            4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        "t10k-labels-idx1-ubyte.gz": (
            5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    },
)  # fmt: skip

_CIFAR_BATCHES = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}

_CIFAR10 = Download(
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    PublishedFile(
        "cifar10/cifar-10-binary.tar.gz",
        170_052_171,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    {
        f"cifar-10-batches-bin/{name}.bin": PublishedFile(
            f"cifar10/cifar-10-batches-bin/{name}.bin", 10_000 * 3_073, sha256
        )
        for name, sha256 in _CIFAR_BATCHES.items()
    },
)

DOWNLOADS: Mapping[str, tuple[Download, ...]] = {
    "mnist": tuple(_MNIST),
    "fashion": tuple(_FASHION),
    "cifar10": (_CIFAR10,),
}
