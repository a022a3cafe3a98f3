"""The settings of a training run, in groups: flags and TOML keys carry the fields' names."""

from __future__ import annotations

from dataclasses import dataclass

from garfield.nodes.node import Waits

NONE = "none"
"""The attack of those who do not lie."""


@dataclass(frozen=True)
class Learning:
    """What is learned, and how."""

    model: str = "mnist_cnn"
    """Which network: mnist_cnn, cifarnet, inception, resnet50, resnet200, vgg19 and others."""
    batch: int = 32
    """Samples a worker computes a gradient on."""
    learning_rate: float = 0.05
    """How far the servers go along a gradient."""
    learning_rate_decay: float = 0.0
    """How fast that falls: at step t it is learning_rate / (1 + learning_rate_decay · t)."""
    momentum: float = 0.9
    """The workers' momentum; their velocities are what they send."""
    weight_decay: float = 0.0
    """The servers' weight decay."""

    def rate(self, step: int) -> float:
        """The learning rate of that step."""
        return self.learning_rate / (1 + self.learning_rate_decay * step)


@dataclass(frozen=True)
class Samples:
    """Which data, and who has which."""

    data: str = "fashion-small"
    """Which images: digits and fashion-small come along; mnist, fashion, cifar10 are fetched."""
    data_dir: str | None = None
    """Where downloaded data lie; else $GARFIELD_DATA, else ~/.cache/garfield."""
    partition: str = "iid"
    """How data are dealt to workers: iid, dirichlet(alpha=0.5), one-class."""


@dataclass(frozen=True)
class Nodes:
    """Who takes part, what they compute with, and how they talk."""

    workers: int = 7
    """How many compute gradients, the lying ones included."""
    servers: int = 1
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
    """What lying workers do: reverse, little-is-enough, silence, equivocate and others."""
    server_attack: str = NONE
    """What lying servers do: the same choice."""
    f_workers: int | None = None
    """How many lying workers are tolerated, if that differs from how many there are."""
    f_servers: int | None = None
    """How many lying servers are tolerated, if that differs from how many there are."""


@dataclass(frozen=True)
class Aggregation:
    """How vectors are joined."""

    gar: str = "multi-krum"
    """The rule that joins gradients, such as median or nnm+trimmed-mean."""
    model_gar: str = "median"
    """The rule that joins the models of several servers."""


@dataclass(frozen=True)
class Rounds:
    """When a round goes on."""

    asynchronous: bool = False
    """Go on with the fastest n - f replies instead of waiting for all."""
    timeout_s: float = 10.0
    """How long a synchronous round waits for the slowest."""
    give_up_s: float = 60.0
    """How long a round may take in all before the run fails."""

    @property
    def waits(self) -> Waits:
        """The time-outs, as nodes are given them."""
        return Waits(self.timeout_s, self.give_up_s)


@dataclass(frozen=True)
class Evaluation:
    """When a model is tried, and on what."""

    evaluate_every: int = 20
    """Steps between evaluations on the test set. Long ones are made beside training, and left out
    while the one before is not done. 0 for only at the end."""
    test_images: int = 0
    """How many images of the test set to evaluate on, drawn at random; 0 for all."""
