"""Data: by name or of the user's own, their partition among workers, and batches of them.

Two sets come with the library, so that training can be tried without a download.

`fashion-small` is a subset of Fashion-MNIST (Zalando SE, MIT licence, see
fashion-small.LICENSE beside the file): 28×28 grey images of clothes in ten
classes. Of each class, 200 training images come from the original training set
and 50 test images from the original test set, drawn at random with seed 0 and
shuffled. It is rebuilt, bit for bit up to the compressor's version, with

    python -m tools.make_subset IDX_DIR fashion-small.npz

from the four original files (train-images-idx3-ubyte.gz and so on) of
https://github.com/zalandoresearch/fashion-mnist; Debian carries them as
`dataset-fashion-mnist`.

`digits` is the set of 8×8 handwritten digits that scikit-learn carries (UCI
repository, CC BY 4.0, see digits.LICENSE), rebuilt where that is installed with

    python -m tools.make_digits digits.npz

`mnist`, `fashion` and `cifar10` are read from a data directory (`stored` says where
and in which formats) and got there by `download.fetch`. Nothing is unpickled.

Data of a user's own need not be images: `arrays` takes tables, tokens and bytes, `sources` reads
them from files, folders and saved data sets of Hugging Face. All are `contract.LearningData`.
"""

from garfield.data.batches import Batches
from garfield.data.catalogue import DATASETS, DatasetEntry, load
from garfield.data.dataset import Dataset
from garfield.data.partitions import PARTITIONS, Partition, partition
from garfield.data.shipped import digits, fashion_small

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "Batches",
    "Dataset",
    "DatasetEntry",
    "Partition",
    "digits",
    "fashion_small",
    "load",
    "partition",
]  # fmt: skip
