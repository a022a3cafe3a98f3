"""All settings of a training run, with their checks: nothing starts before they pass."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from garfield.apps import APPS, checks
from garfield.apps.application import App, Numbers
from garfield.apps.options import Options, Training
from garfield.core.config import Setting, settings_of
from garfield.core.errors import ConfigError, UnknownName
from garfield.gars import Rule, parse
from garfield.nodes.node import Waits

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NONE = "none"


@dataclass(frozen=True)
class Settings(Options):
    """One run. Flags of `garfield train` and keys of its TOML file carry these names."""

    app: str = "ssmw"
    """Which algorithm: vanilla, crash-tolerant, ssmw, msmw, decentralized, aggregathor, draco,
    guanyu, liubei."""
    model: str = "mnist_cnn"
    """Which network: mnist_cnn, cifarnet, inception, resnet50, resnet200, vgg19 and others."""
    framework: str = "torch"
    """What computes: torch, tensorflow, or both, dealt to workers in turn: torch,tensorflow."""
    data: str = "fashion-small"
    """Which images: digits and fashion-small come along; mnist, fashion, cifar10 are fetched."""
    data_dir: str | None = None
    """Where downloaded data lie; else $GARFIELD_DATA, else ~/.cache/garfield."""
    workers: int = 7
    """How many compute gradients, the lying ones included."""
    servers: int = 1
    """How many keep the model, the lying ones included."""
    byzantine_workers: int = 0
    """How many workers lie, and by default how many the rule is told to tolerate."""
    byzantine_servers: int = 0
    """How many servers lie, and by default how many are tolerated."""
    f_workers: int | None = None
    """How many lying workers are tolerated, if that differs from how many there are."""
    f_servers: int | None = None
    """How many lying servers are tolerated, if that differs from how many there are."""
    gar: str = "multi-krum"
    """The rule that joins gradients, such as median or nnm+trimmed-mean."""
    model_gar: str = "median"
    """The rule that joins the models of several servers."""
    worker_attack: str = NONE
    """What lying workers do: reverse, little-is-enough, silence, equivocate and others."""
    server_attack: str = NONE
    """What lying servers do: the same choice."""
    steps: int = 200
    """Updates of the model."""
    batch: int = 32
    """Samples a worker computes a gradient on."""
    learning_rate: float = 0.05
    """At the servers."""
    learning_rate_decay: float = 0.0
    """The rate at step t is learning_rate / (1 + learning_rate_decay · t)."""
    momentum: float = 0.9
    """At the workers; their velocities are what they send."""
    weight_decay: float = 0.0
    """At the servers."""
    partition: str = "iid"
    """How data are dealt to workers: iid, dirichlet(alpha=0.5), one-class."""
    contractions: int = 0
    """Contraction rounds a step (decentralized), for data that are not iid."""
    asynchronous: bool = False
    """Go on with the fastest n - f replies instead of waiting for all."""
    evaluate_every: int = 20
    """Steps between evaluations on the test set. Long ones are made beside training, and left out
    while the one before is not done. 0 for only at the end."""
    test_images: int = 0
    """How many images of the test set to evaluate on, drawn at random; 0 for all."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0 for only at the end, and when interrupted."""
    timeout_s: float = 10.0
    """How long a synchronous round waits for the slowest."""
    give_up_s: float = 60.0
    """How long a round may take in all before the run fails."""
    seed: int = 0
    """Fixes all randomness."""
    simulate: bool = False
    """All nodes in one process, on a virtual clock."""
    exclude: str | None = None
    """Peers to leave out altogether, with commas: worker-3,worker-5."""
    transport: str = "grpc"
    """How nodes talk: grpc; for vanilla, where all are trusted, also gloo and nccl."""

    @property
    def application(self) -> App:
        return APPS[self.app]

    @property
    def frameworks(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.framework.split(","))

    def framework_of(self, name: str) -> str:
        """What a node computes with: workers take turns, servers have the first."""
        if name in self.all_servers:
            return self.frameworks[0]
        return self.frameworks[self.all_workers.index(name) % len(self.frameworks)]

    @property
    def numbers(self) -> Numbers:
        """What the application and its rules are told."""
        f_w = self.byzantine_workers + self.faulty_links
        f_w = f_w if self.f_workers is None else self.f_workers
        f_ps = self.byzantine_servers if self.f_servers is None else self.f_servers
        n_w, n_ps = len(self.worker_names), len(self.server_names)
        if self.application.peers:
            return Numbers(n_w, f_w, n_w, f_w, not self.asynchronous)
        if not self.application.robust:  # it tolerates no lies, whatever there may be
            f_w = f_w if self.application.several_servers else 0
        f_ps = f_ps if self.application.several_servers else 0
        quorums = (self.gradient_quorum, self.model_quorum)
        liars = len(set(self.liars).intersection(self.worker_names))
        return Numbers(n_w, f_w, n_ps, f_ps, not self.asynchronous, *quorums, liars)

    @property
    def training(self) -> Training:
        return Training(**{part.name: getattr(self, part.name) for part in fields(Training)})

    @property
    def rule(self) -> Rule:
        chosen = self.application.robust and self.application.joins is None
        return parse(self.gar if chosen else "average")

    @property
    def server_momentum(self) -> float:
        """Of the servers' optimizers; the workers then have none."""
        return self.momentum if self.application.momentum_at_server else 0.0

    @property
    def model_rule(self) -> Rule:
        return parse(self.model_gar)

    @property
    def waits(self) -> Waits:
        return Waits(self.timeout_s, self.give_up_s)

    @property
    def all_workers(self) -> tuple[str, ...]:
        """The excluded included, whose data stay theirs. Sorted by name is sorted by number."""
        return _names("node" if self.application.peers else "worker", self.workers)

    @property
    def all_servers(self) -> tuple[str, ...]:
        if self.application.peers:
            return self.all_workers
        return _names("server", self.servers if self.application.several_servers else 1)

    @property
    def excluded(self) -> tuple[str, ...]:
        """Neither asked nor answered, nor counted."""
        return tuple(name.strip() for name in (self.exclude or "").split(",") if name.strip())

    def _present(self, names: tuple[str, ...]) -> tuple[str, ...]:
        left_out = self.excluded
        return tuple(name for name in names if name not in left_out) if left_out else names

    @property
    def worker_names(self) -> tuple[str, ...]:
        return self._present(self.all_workers)

    @property
    def server_names(self) -> tuple[str, ...]:
        return self._present(self.all_servers)

    @property
    def liars(self) -> tuple[str, ...]:
        """The last of each kind lie; the first of each is always honest."""
        lying = self.all_workers[self.workers - self.byzantine_workers :]
        if not self.application.peers:
            lying += self.all_servers[len(self.all_servers) - self.byzantine_servers :]
        return self._present(lying)

    @property
    def honest_servers(self) -> tuple[str, ...]:
        """The first of them evaluates, and tells how the run goes."""
        return tuple(name for name in self.server_names if name not in self.liars)

    def check(self) -> Settings:
        """Raise ConfigError for anything that cannot work; itself otherwise."""
        checks.ranges(self)
        checks.data(self)
        checks.frameworks(self)
        checks.attacks(self)
        checks.exclusion(self)
        checks.tolerance(self)
        checks.transport(self)
        if self.application.joins is not None and self.gar not in (Settings.gar, "average"):
            how = self.application.joins(self, self.numbers)
            raise ConfigError(f"{self.app} joins gradients by {how}: leave --gar {self.gar} out.")
        self.refuse_unused(self.app, self.application.options)
        self.application.check(self.numbers, self.rule, self.model_rule, self)
        return self

    def updated(self, **changes: Any) -> Settings:
        """With some settings changed; a misspelt one is refused with the nearest name.

        With another application come the defaults of its own, for what is not given.
        """
        if isinstance(changes.get("app"), str):
            changes = {**self._defaults_of(changes["app"]), **changes}
        known = {f.name: str(f.type) for f in fields(self)}
        for name, value in changes.items():
            if name not in known:
                raise UnknownName("a setting", name, known)
            if name == "exclude" and isinstance(value, (list, tuple)):  # as TOML has it
                value = ",".join(map(str, value))
            changes[name] = _typed(name, known[name], value)
        return replace(self, **changes)

    def _defaults_of(self, app: str) -> dict[str, Any]:
        """Of that application, where this one's stand as they were."""
        general = {f.name: f.default for f in fields(self)}
        mine, its = self.application.defaults, APPS[app].defaults
        return {
            name: its.get(name, general[name])
            for name in {**mine, **its}
            if getattr(self, name) == mine.get(name, general[name])
        }


def all_settings() -> tuple[Setting, ...]:
    """Every setting of a run, those of single applications included."""
    return settings_of(Settings)


def read_toml(path: Path) -> dict[str, Any]:
    """Settings from a file: keys as the flags are spelt, with - or _."""
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise ConfigError(f"{path} cannot be read: {problem}.") from None
    return {name.replace("-", "_"): value for name, value in content.items()}


def _typed(name: str, kind: str, value: Any) -> Any:
    """The value as its field wants it; an int will do for a float, nothing else for anything."""
    if kind.endswith("| None") and value is None:
        return None
    wanted = _KINDS[kind.partition(" ")[0]]
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise ConfigError(f"{name} must be {_WORDS[wanted]}, got {value!r}.")
    return value


_KINDS: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _names(prefix: str, count: int) -> tuple[str, ...]:
    width = len(str(count - 1))
    return tuple(f"{prefix}-{i:0{width}}" for i in range(count))
