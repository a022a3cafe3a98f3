"""All settings of a training run, with their checks: nothing starts before they pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from garfield.apps import APPLICATIONS, checks
from garfield.apps.application import AVERAGE, Application
from garfield.apps.groups import (
    Aggregation,
    Evaluation,
    Faults,
    Learning,
    Nodes,
    Rounds,
    Samples,
)
from garfield.apps.run import Numbers
from garfield.core.bounds import Seed, Within, is_number
from garfield.core.config import (
    NOT_A_SETTING,
    Setting,
    flattened,
    known_setting,
    made,
    named,
    settings_of,
    values_of,
)
from garfield.core.errors import ConfigError
from garfield.gars import Rule, parse
from garfield.runs.recording import Recording
from garfield.transport.datagrams.links import LossyLinks


@dataclass(frozen=True)
class Settings:
    """One run. Flags of `garfield train` and keys of its TOML file carry the fields' names.

    `Settings.of` makes them from flat names, whatever the group.
    """

    app: str = "ssmw"
    """Which algorithm: vanilla, crash-tolerant, ssmw, msmw, decentralized, aggregathor, draco,
    guanyu, liubei."""
    steps: Annotated[int, Within(1, 10**12)] = 200
    """Updates of the model."""
    seed: Seed = 0
    """Fixes all randomness."""
    simulate: bool = False
    """All nodes in one process, on a virtual clock."""
    checkpoint_every: Annotated[int, Within(0)] = 0
    """Steps between checkpoints; 0 for only at the end, and when interrupted."""
    learning: Learning = field(default_factory=Learning)
    samples: Samples = field(default_factory=Samples)
    nodes: Nodes = field(default_factory=Nodes)
    faults: Faults = field(default_factory=Faults)
    aggregation: Aggregation = field(default_factory=Aggregation)
    rounds: Rounds = field(default_factory=Rounds)
    evaluation: Evaluation = field(default_factory=Evaluation)
    recording: Recording = field(default_factory=Recording)
    own_values: tuple[tuple[str, Any], ...] = field(default=(), metadata=NOT_A_SETTING)
    """What is set of the applications' own settings, by name, where it is not the default."""

    @classmethod
    def of(cls, **values: Any) -> Settings:
        """Make settings of flat names; what is not given has its application's default."""
        return cls().updated(**values)

    @property
    def application(self) -> Application[Any]:
        """The application by that name."""
        return APPLICATIONS[self.app]

    @property
    def own(self) -> Any:
        """The settings that are the application's own."""
        known = named(settings_of(self.application.own))
        return self.application.own(**{k: v for k, v in self.own_values if k in known})

    def values(self) -> dict[str, Any]:
        """Every setting by its flat name, the application's own included."""
        return values_of(self) | values_of(self.own)

    @property
    def frameworks(self) -> tuple[str, ...]:
        """What computes, one or two of them."""
        return tuple(part.strip() for part in self.nodes.framework.split(","))

    def framework_of(self, name: str) -> str:
        """What a node computes with: workers take turns, servers have the first."""
        if name in self.all_servers:
            return self.frameworks[0]
        return self.frameworks[self.all_workers.index(name) % len(self.frameworks)]

    @property
    def numbers(self) -> Numbers:
        """What the application and its rules are told."""
        return self.application.numbers(self)

    @property
    def rule(self) -> Rule:
        """What joins gradients."""
        return self.application.rule(self)

    @property
    def model_rule(self) -> Rule:
        """What joins models."""
        return parse(self.aggregation.model_gar)

    @property
    def rule_name(self) -> str:
        """How gradients are joined, in a word or two."""
        app = self.application
        return AVERAGE if app.averages(self) else app.rule_name(self)

    @property
    def lossy_links(self) -> LossyLinks | None:
        """The links that may lose parts of vectors; None if there are none."""
        return self.application.lossy_links(self)

    @property
    def all_workers(self) -> tuple[str, ...]:
        """Names of the workers, the excluded included, whose data stay theirs."""
        return self.application.worker_names(self)

    @property
    def all_servers(self) -> tuple[str, ...]:
        """Names of the servers, the excluded included."""
        return self.application.server_names(self)

    def _present(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in self.nodes.exclude)

    @property
    def worker_names(self) -> tuple[str, ...]:
        """Names of the workers that take part."""
        return self._present(self.all_workers)

    @property
    def server_names(self) -> tuple[str, ...]:
        """Names of the servers that take part."""
        return self._present(self.all_servers)

    @property
    def liars(self) -> tuple[str, ...]:
        """Names of those who lie: the last of each kind, never the first.

        Workers of whom others lie at each step are no liars by name: they train honestly.
        """
        workers, servers = self.all_workers, self.all_servers
        lying = workers[len(workers) - self.lasting_liars :]
        lying += servers[len(servers) - self.faults.byzantine_servers :]
        return self._present(lying)

    @property
    def lasting_liars(self) -> int:
        """How many workers lie at every step."""
        return 0 if self.faults.redrawn else self.faults.byzantine_workers

    @property
    def honest_servers(self) -> tuple[str, ...]:
        """Names of the servers that do not lie; the first evaluates, and tells how the run goes."""
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
        checks.rules(self)
        self._refuse_unused()
        self.application.check(self)
        return self

    def updated(self, **changes: Any) -> Settings:
        """Return settings with some changed; a misspelt one is refused with the nearest name.

        With another application come the defaults of its own, for what is not given.
        """
        changes = _renamed(changes)
        if isinstance(changes.get("app"), str):
            changes = {**self._defaults_of(changes["app"]), **changes}
        general, owned = named(settings_of(Settings)), settings_of_applications()
        known = {name: alike[0] for name, alike in owned.items()} | general
        values, own = values_of(self), dict(self.own_values)
        for name, value in changes.items():
            typed = known_setting(name, known).typed(value)
            if name in general:
                values[name] = typed
            elif all(setting.default == typed for setting in owned[name]):
                own.pop(name, None)
            else:
                own[name] = typed
        in_order = tuple((name, own[name]) for name in owned if name in own)
        return replace(made(Settings, values), own_values=in_order)

    def _refuse_unused(self) -> None:
        """Raise ConfigError for a setting that is given and that only others have."""
        own, owned = named(settings_of(self.application.own)), settings_of_applications()
        for name, value in self.own_values:
            if name not in own and all(setting.default != value for setting in owned[name]):
                remedy = f"It knows: {', '.join(own)}." if own else "Leave it out."
                raise ConfigError(f"{self.app} does not use {name}. {remedy}")

    def _defaults_of(self, app: str) -> dict[str, Any]:
        """The defaults of that application, where this one's stand as they were."""
        general = {setting.name: setting.default for setting in settings_of(Settings)}
        mine, its, values = self.application.defaults, APPLICATIONS[app].defaults, values_of(self)
        return {
            name: its.get(name, general[name])
            for name in {**mine, **its}
            if values[name] == mine.get(name, general[name])
        }


def _renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are called now: once, `loss` was the share of packets that links lose."""
    changes = dict(values)
    if is_number(changes.get("loss")):
        changes["packet_loss"] = float(changes.pop("loss"))
    return changes


def settings_of_applications() -> dict[str, list[Setting]]:
    """The settings that applications own, by name; several may have one of the same name."""
    found: dict[str, list[Setting]] = {}
    general = named(settings_of(Settings))
    for name, application in APPLICATIONS.items():
        for setting in settings_of(application.own):
            alike = found.setdefault(setting.name, [])
            other_kind = (each for each in alike if each.kind is not setting.kind)
            clash = general.get(setting.name) or next(other_kind, None)
            if clash is not None:
                whose = clash.group if alike else "every run"
                raise ConfigError(
                    f"{setting.name} cannot be a setting of {name}: it is one of {whose} already. "
                    "Choose another name."
                )
            alike.append(replace(setting, group=name))
    return found


def all_settings() -> list[Setting]:
    """Every setting of a run, then those of each application, in a group of its name."""
    owned = settings_of_applications().values()
    return [*settings_of(Settings), *(setting for each in owned for setting in each)]


def from_toml(content: dict[str, Any]) -> Settings:
    """Settings from what a TOML file holds: flat keys, or tables of groups."""
    values = flattened(content, all_settings())
    app = APPLICATIONS[values["app"]] if isinstance(values.get("app"), str) else None
    if app and "contractions" not in named(settings_of(app.own)) and not values.get("contractions"):
        values.pop("contractions", None)  # once, every run's file held it, as 0
    return Settings.of(**values)
