"""Checks of settings, each by itself and against each other, before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from garfield.apps.groups import NONE
from garfield.apps.own_parts import (
    check_data_name,
    check_learning_names,
    is_plain,
    model_named,
)
from garfield.core.config import settings_of
from garfield.core.errors import ConfigError, UnknownName
from garfield.core.frameworks import FRAMEWORKS
from garfield.data import DATASETS
from garfield.data.partitions import parse as parse_partition
from garfield.gars import parse
from garfield.models import MODELS
from garfield.nodes.plan import Plan, parse_plan

if TYPE_CHECKING:
    from garfield.apps.settings import Settings

TRANSPORTS = ("grpc", "gloo", "nccl")


def ranges(settings: Settings) -> None:
    """Every number is one that means something: within the bounds declared beside it."""
    value = settings.values()
    for setting in (*settings_of(type(settings)), *settings_of(settings.application.own)):
        setting.check(value[setting.name])


def data(settings: Settings) -> None:
    """The model takes the images, as far as that is known unread, and they can be dealt so."""
    s = settings
    check_data_name(s.samples.data)
    check_learning_names(s.learning)
    model, images = model_named(s.learning.model), DATASETS.get(s.samples.data)
    parse_partition(s.samples.partition)
    if images is None or None in (model.image, images.image):
        return  # whether they fit is tried before the run (`launch/trial.py`)
    if model.image != images.image:
        assert model.image is not None
        assert images.image is not None
        fitting = [name for name, other in MODELS.items() if other.image == images.image]
        raise ConfigError(
            f"{s.learning.model} takes images of {_shape(model.image)}, and those of "
            f"{s.samples.data} are {_shape(images.image)}. Choose one of: "
            f"{', '.join(fitting) or 'none so far'}."
        )


def attacks(settings: Settings) -> None:
    """There are as many who may lie, and a way to lie by that name."""
    s = settings
    value = s.values()
    for liars, among in (("byzantine_workers", "workers"), ("byzantine_servers", "servers")):
        count, most = value[liars], value[among] - 1
        if not 0 <= count <= most:
            raise ConfigError(f"{liars} must be within 0..{most} ({among} - 1), got {count}.")
    for role, attack in (("worker", s.faults.worker_attack), ("server", s.faults.server_attack)):
        if attack != NONE:
            _plan(s, role, parse_plan(attack))


def _plan(settings: Settings, role: str, plan: Plan) -> None:
    """Whom a plan names is there, and whoever lies can do so at that time."""
    known = dict.fromkeys((*settings.all_servers, *settings.all_workers))
    for name in sorted(plan.timing.askers):
        if name not in known:
            raise UnknownName("a node of this run", name, known)
    if plan.timing.redrawn and role == "server":
        raise ConfigError("Workers can be redrawn each step; servers who lie stay the same.")
    if plan.timing.redrawn and plan.attack is not None and plan.attack.kind == "data":
        raise ConfigError(
            f"{plan.attack.name} lies in the training data, which is dealt once: who lies cannot "
            "be redrawn. Leave redrawn out, or choose an attack on vectors."
        )


def exclusion(settings: Settings) -> None:
    """Only nodes of the run can be left out, and not all of a kind."""
    s = settings
    known = dict.fromkeys((*s.all_servers, *s.all_workers))
    for name in s.nodes.exclude:
        if name not in known:
            raise UnknownName("a node of this run", name, known)
    if not s.worker_names or not s.honest_servers:
        who = "honest server" if s.worker_names else "worker"
        raise ConfigError(f"Without {', '.join(s.nodes.exclude)} no {who} is left.")


def tolerance(settings: Settings) -> None:
    """Somebody must be honest, whatever the rule says; and servers have no data to lie in.

    A rule's own bound comes later: it knows what it needs beyond this.
    """
    s = settings
    for name, f, n in (
        ("f_workers", s.numbers.f_w, s.numbers.n_w), ("f_servers", s.numbers.f_ps, s.numbers.n_ps),
    ):  # fmt: skip
        if not 0 <= f < n:
            raise ConfigError(f"{name} must be within 0..{n - 1} (of the {n} there are), got {f}.")
    attack = None if s.faults.server_attack == NONE else parse_plan(s.faults.server_attack).attack
    if attack is not None and attack.kind == "data":
        raise ConfigError(f"{attack.name} lies in the training data, and servers have none.")


def frameworks(settings: Settings) -> None:
    """They are known, and have the model."""
    s = settings
    for name in s.frameworks:
        if name not in FRAMEWORKS:
            raise UnknownName("a framework", name, FRAMEWORKS)
    written = [name for name, model in MODELS.items() if model.in_keras is not None]
    if "tensorflow" not in s.frameworks:
        return
    if s.learning.model in MODELS and not is_plain(s.learning):
        raise ConfigError(
            "Losses, metrics and optimizers other than cross-entropy, accuracy and sgd are for "
            "torch alone. Leave them out, or use --framework torch."
        )
    if s.learning.model not in written:
        raise ConfigError(
            f"{s.learning.model} is not written for TensorFlow. Choose one of: "
            f"{', '.join(written)}."
        )


def rules(settings: Settings) -> None:
    """Both rules are known, also the one that an application may not need."""
    for name in (settings.aggregation.gar, settings.aggregation.model_gar):
        parse(name)


def transport(settings: Settings) -> None:
    """Collectives carry the trusted baseline alone."""
    s = settings
    if s.nodes.transport not in TRANSPORTS:
        raise UnknownName("a transport", s.nodes.transport, TRANSPORTS)
    if s.nodes.transport == "grpc":
        return
    s.application.check_transport(s)
    lying = {s.faults.worker_attack, s.faults.server_attack} != {NONE}
    if s.simulate or s.rounds.asynchronous or lying:
        raise ConfigError(
            f"With {s.nodes.transport} all nodes are trusted, synchronous and real: no attacks, no "
            "--asynchronous, no --simulate. Use --transport grpc for these."
        )
    from garfield.transport.collectives import check

    check(s.nodes.transport, len(s.worker_names) + len(s.server_names))


def _shape(image: tuple[int, int, int]) -> str:
    return "×".join(map(str, image))
