"""The settings of a training run, in groups: flags and TOML keys carry the fields' names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from garfield.core.bounds import Within
from garfield.data.partitions import parse as parse_partition
from garfield.nodes.node import Waits
from garfield.nodes.plan import parse_plan

_MOST_NODES = 100_000
"""More names than that are a slip of the keyboard."""
_SECONDS = Within(0, 1_000_000_000, above=True)

NONE = "none"
"""The attack of those who do not lie."""


@dataclass(frozen=True)
class Learning:
    """What is learned, and how."""

    model: str = "mnist_cnn"
    """Which network: mnist_cnn, cifarnet, inception, resnet50, resnet200, vgg19 and others; or
    mine.py:Net for one of yours."""
    loss: str | None = None
    """What outputs and targets are compared by: cross-entropy, mse, mae, torch.nn:HuberLoss or
    mine.py:loss. If not given, cross-entropy for classes, mse for other numbers."""
    metric: str | None = None
    """What a model is judged by: accuracy, mse, rmse, mae or mine.py:metric. If not given, accuracy
    for classes, mse for other numbers."""
    larger_is_better: bool | None = None
    """Whether the larger metric is the better one; if not given, true for a metric of yours."""
    optimizer: str = "sgd"
    """What servers take steps by: sgd, adam, adamw, torch.optim:RMSprop or mine.py:optimizer."""
    batch: Annotated[int, Within(1)] = 32
    """Samples a worker computes a gradient on."""
    learning_rate: Annotated[float, Within(0, above=True)] = 0.05
    """How far the servers go along a gradient."""
    learning_rate_decay: Annotated[float, Within(0)] = 0.0
    """How fast that falls: at step t it is learning_rate / (1 + learning_rate_decay · t)."""
    momentum: Annotated[float, Within(0, 1, below=True)] = 0.9
    """The workers' momentum; their velocities are what they send."""
    weight_decay: Annotated[float, Within(0)] = 0.0
    """The servers' weight decay."""

    def rate(self, step: int) -> float:
        """The learning rate of that step."""
        return self.learning_rate / (1 + self.learning_rate_decay * step)


@dataclass(frozen=True)
class Samples:
    """Which data, and who has which."""

    data: str = "fashion-small"
    """Which data: digits and fashion-small come along; mnist, fashion, cifar10 are fetched. Yours:
    data.npz, folder:DIR, hf:DIR, or mine.py:load for a function that returns arrays."""
    data_dir: str | None = None
    """Where downloaded data lie; else $GARFIELD_DATA, else ~/.cache/garfield."""
    partition: str = "iid"
    """How data are dealt to workers: iid, dirichlet(alpha=0.5), similarity(gamma=0.5) or
    one-class."""
    image_side: Annotated[int | None, Within(1)] = None
    """Scale and crop the images of folder:DIR and hf:DIR to squares of so many pixels."""

    @property
    def iid(self) -> bool:
        """Whether every worker's data are drawn alike."""
        return parse_partition(self.partition).name == "iid"


@dataclass(frozen=True)
class Nodes:
    """Who takes part, what they compute with, and how they talk."""

    workers: Annotated[int, Within(1, _MOST_NODES)] = 7
    """How many compute gradients, the lying ones included."""
    servers: Annotated[int, Within(1, _MOST_NODES)] = 1
    """How many keep the model, the lying ones included."""
    exclude: tuple[str, ...] = ()
    """Peers to leave out altogether, with commas: worker-3,worker-5."""
    framework: str = "torch"
    """What computes: torch, tensorflow, or both, dealt to workers in turn: torch,tensorflow."""
    transport: str = "grpc"
    """How nodes talk: grpc; for vanilla, where all are trusted, also gloo and nccl."""


@dataclass(frozen=True)
class Faults:
    """Who lies and how, and how much of it is borne."""

    byzantine_workers: int = 0
    """How many workers lie, and by default how many the rule is told to tolerate."""
    byzantine_servers: int = 0
    """How many servers lie, and by default how many are tolerated."""
    worker_attack: str = NONE
    """What lying workers do, and when: reverse, little-is-enough, silence and others, then words
    like last or withhold(from=server-1), parted by commas."""
    server_attack: str = NONE
    """What lying servers do: the same choice."""
    f_workers: int | None = None
    """How many lying workers are tolerated, if that differs from how many there are."""
    f_servers: int | None = None
    """How many lying servers are tolerated, if that differs from how many there are."""

    @property
    def redrawn(self) -> bool:
        """Whether the workers who lie are others at each step."""
        return self.worker_attack != NONE and parse_plan(self.worker_attack).timing.redrawn


@dataclass(frozen=True)
class Aggregation:
    """How vectors are joined."""

    gar: str = "centered-clipping"
    """The rule that joins gradients, such as median or nnm+trimmed-mean."""
    model_gar: str = "trimmed-mean"
    """The rule that joins the models of several servers; only the trimmed mean keeps them together
    whatever liars say to whom."""


@dataclass(frozen=True)
class Rounds:
    """When a round goes on."""

    asynchronous: bool = False
    """Go on with the fastest n - f replies instead of waiting for all."""
    timeout_s: Annotated[float, _SECONDS] = 10.0
    """How long a synchronous round waits for the slowest once it could go on without them."""
    give_up_s: Annotated[float, _SECONDS] = 60.0
    """How long a round may take in all before the run fails."""
    wait_for_servers_s: Annotated[float, _SECONDS] = 600.0
    """How long a worker waits for servers that are down, to be started again; at least one and a
    half times give_up_s."""

    @property
    def waits(self) -> Waits:
        """The time-outs, as nodes are given them."""
        return Waits(self.timeout_s, self.give_up_s)


@dataclass(frozen=True)
class Evaluation:
    """When a model is tried, and on what."""

    evaluate_every: Annotated[int, Within(0)] = 20
    """Steps between evaluations on the test set. Long ones are made beside training, and left out
    while the one before is not done. 0 for only at the end."""
    test_images: Annotated[int, Within(0)] = 0
    """How many samples of the test set to evaluate on, drawn at random; 0 for all."""
