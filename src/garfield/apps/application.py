"""What an application is: a server's loop, and how it differs from one trusted server.

A loop is a function of a `Server` and a `Run`, as in listings 3.1 to 3.3 of the thesis; it uses
the server's methods alone, and the run (`run.py`) carries the rules and quorums that a user chose.
The decorator `application` registers it:

    @dataclass(frozen=True)
    class Pauses:
        every: int = 10
        '''Steps between pauses.'''

    class Paused(Application[Pauses]):
        own = Pauses

    @application("paused", Paused)
    def paused(ps: Server, run: Run[Pauses]) -> None:
        '''One trusted server that pauses now and then.'''
        ...

From then on `garfield train --app paused --every 5` runs it. What an `Application` does not say
otherwise is as for one trusted server with a robust rule; `SeveralServers` and `Peers` differ
in who takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic

from garfield.adapters.contract import Adapter, Batch
from garfield.apps.bearing import Join, cautions, halves_meet
from garfield.apps.groups import NONE
from garfield.apps.run import NoSettings, Numbers, Own, Run
from garfield.core.config import values_of
from garfield.core.errors import ConfigError
from garfield.core.registry import Registry
from garfield.gars import Rule, parse
from garfield.nodes.server import Server, ServerArguments
from garfield.nodes.worker import Worker, WorkerArguments

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from garfield.apps.settings import Settings
    from garfield.transport.datagrams.links import LossyLinks

APPLICATIONS: Registry[Application[Any]] = Registry("an application")

AVERAGE = "average"

Probe = Callable[[], tuple[Adapter, Batch]]
"""Makes the model as every node starts with it, and some of the data: the same for all."""


@dataclass(frozen=True)
class WorkerPlace:
    """Which worker is to be built, for which run, and the data that there are."""

    settings: Settings
    name: str
    batches_of: Callable[[str], Any]
    """The batches of any worker, by name."""


Loop = Callable[[Server, Run[Any]], None]


class Application(Generic[Own]):
    """One trusted server, workers that may lie, and a robust rule, unless a subclass differs."""

    own: type[Any] = NoSettings
    """Its own settings: a documented, frozen dataclass (`garfield.core.config`)."""
    defaults: Mapping[str, Any] = MappingProxyType({})
    """Settings of every run that mean something else here when they are not given."""
    worker_class: type[Worker] = Worker
    """What its workers are, where they are built as every worker is."""

    def __init__(self, name: str, loop: Loop) -> None:
        self.name = name
        self.loop = loop
        self.summary = (loop.__doc__ or "").partition("\n")[0]

    def __repr__(self) -> str:
        return f"<application {self.name}>"

    def own_of(self, settings: Settings) -> Own:
        """The part of a run's settings that is this application's own."""
        own: Own = settings.own
        return own

    # -- who takes part -------------------------------------------------------------------------

    def worker_names(self, settings: Settings) -> tuple[str, ...]:
        """All who compute gradients, in order; the last ones lie."""
        return numbered("worker", settings.nodes.workers)

    def server_names(self, settings: Settings) -> tuple[str, ...]:
        """All who keep a model, in order; the last ones lie."""
        return numbered("server", 1)

    def role(self, settings: Settings, name: str) -> str:
        """What the certificate of a node must say that it is."""
        return "server" if name in settings.all_servers else "worker"

    def numbers(self, settings: Settings) -> Numbers:
        """What the loop and its rules are told; whoever is excluded does not count."""
        workers, servers = settings.worker_names, settings.server_names
        return Numbers(
            len(workers), self.tolerated_workers(settings),
            len(servers), self.tolerated_servers(settings),
            synchronous=not settings.rounds.asynchronous,
            liars_w=len(set(settings.liars).intersection(workers)),
        )  # fmt: skip

    def tolerated_workers(self, settings: Settings) -> int:
        """How many faulty workers the rule is told to bear: as many as lie, unless said."""
        said = settings.faults.f_workers
        return self.faulty_workers(settings) if said is None else said

    def tolerated_servers(self, settings: Settings) -> int:
        """How many faulty servers are borne: the one server is trusted."""
        return 0

    def doubted(self, settings: Settings) -> int:
        """How many servers may lie beside those who are known to."""
        known = len(set(settings.liars).intersection(settings.server_names))
        return max(0, settings.numbers.f_ps - known)

    def faulty_workers(self, settings: Settings) -> int:
        """How many workers count as faults in this run, as far as its settings say."""
        return settings.faults.byzantine_workers

    # -- how vectors are joined -----------------------------------------------------------------

    def rule(self, settings: Settings) -> Rule:
        """What joins gradients: the rule by that name, or the average where it `averages`."""
        return parse(AVERAGE if self.averages(settings) else self.rule_name(settings))

    def averages(self, settings: Settings) -> bool:
        """Whether no fault is expected, and the rule would be no average all the same."""
        named = parse(self.rule_name(settings))
        return self.tolerated_workers(settings) == 0 and named.averages_without_faults

    def rule_name(self, settings: Settings) -> str:
        """How gradients are joined, in a word or two, for titles and summaries."""
        return settings.aggregation.gar

    def server_momentum(self, settings: Settings) -> float:
        """The momentum of the servers' optimizers; workers have the rest."""
        return 0.0

    # -- before a run ---------------------------------------------------------------------------

    def check(self, settings: Settings) -> None:
        """Raise ConfigError for settings that cannot work: nothing has started yet."""
        if settings.nodes.servers != 1:
            raise ConfigError(f"{self.name} has one server, got {settings.nodes.servers}.")
        numbers = settings.numbers
        rule, silent = self.rule(settings), numbers.f_w if numbers.synchronous else 0
        rule.check_all(numbers.q_w, numbers.f_w, least=max(1, numbers.q_w - silent))

    def cautions(self, settings: Settings) -> Iterable[str]:
        """What to know of such a run, and what it cannot bear; a line each."""
        if self.averages(settings):
            name = self.rule_name(settings)
            yield (
                f"f = 0: no worker is expected to lie, so gradients are averaged. {name} would "
                f"{parse(name).anyway} all the same; --f-workers 1 and more makes it the rule."
            )

    def check_transport(self, settings: Settings) -> None:
        """Raise ConfigError for a transport on which one silent peer ends all communication."""
        raise ConfigError(
            f"{self.name} must survive faults, and with {settings.nodes.transport} one silent peer "
            "ends the communication of all. Use --transport grpc, or --app vanilla."
        )

    def settled(self, settings: Settings, probe: Probe) -> Settings:
        """Work out from model and data what the settings leave to the application."""
        return settings

    def lossy_links(self, settings: Settings) -> LossyLinks | None:
        """The links that may lose parts of vectors; None if there are none."""
        return None

    # -- nodes, and what is told of them --------------------------------------------------------

    def worker(
        self, place: WorkerPlace, model: Adapter, **arguments: Unpack[WorkerArguments]
    ) -> Worker:
        """Build the worker of that place."""
        return self.worker_class(model, place.batches_of(place.name), **arguments)

    def server(self, model: Adapter, **arguments: Unpack[ServerArguments]) -> Server:
        """Build a server."""
        return Server(model, **arguments)

    def summary_fields(self, settings: Settings) -> dict[str, Any]:
        """What a run's summary says of it besides what every summary says."""
        return values_of(self.own_of(settings))


class SeveralServers(Application[Own]):
    """Servers may be faulty too: there are several, who join their models by a rule."""

    has_peers = False
    """Whether every node is server and worker at once."""

    def server_names(self, settings: Settings) -> tuple[str, ...]:
        return numbered("server", settings.nodes.servers)

    def tolerated_servers(self, settings: Settings) -> int:
        said = settings.faults.f_servers
        return settings.faults.byzantine_servers if said is None else said

    def joins(self, settings: Settings) -> tuple[Join, Join]:
        """How gradients are joined, and how models are."""
        numbers = settings.numbers
        workers, servers = ("nodes",) * 2 if self.has_peers else ("workers", "servers")
        return (
            Join(workers, self.rule(settings), numbers.n_w, numbers.f_w, numbers.q_w),
            Join(servers, settings.model_rule, numbers.n_ps, numbers.f_ps, numbers.q_ps),
        )

    def check(self, settings: Settings) -> None:
        gradients, models = self.joins(settings)
        gradients.check()
        models.check()
        if not models.synchronous:
            halves_meet(models.n, models.f, models.q)

    def cautions(self, settings: Settings) -> Iterable[str]:
        yield from super().cautions(settings)
        yield from cautions(*self.joins(settings))


class Peers(SeveralServers[Own]):
    """No server: every node is server and worker at once."""

    has_peers = True

    def worker_names(self, settings: Settings) -> tuple[str, ...]:
        return numbered("node", settings.nodes.workers)

    def server_names(self, settings: Settings) -> tuple[str, ...]:
        return self.worker_names(settings)

    def role(self, settings: Settings, name: str) -> str:
        return "node"

    def tolerated_servers(self, settings: Settings) -> int:
        return self.tolerated_workers(settings)

    def check(self, settings: Settings) -> None:
        faults = settings.faults
        if settings.nodes.servers != 1 or faults.f_servers or faults.server_attack != NONE:
            raise ConfigError(
                f"{self.name} has no servers: every node is server and worker at once. Say it with "
                "--workers, --f-workers and --worker-attack."
            )
        one_framework(
            settings,
            f"The nodes of {self.name} start from the same weights, and torch and tensorflow draw "
            "them differently.",
        )
        super().check(settings)


def application(name: str, kind: type[Application[Any]] = Application) -> Callable[[Loop], Loop]:
    """Register a server's loop as an application; its docstring's first line is the summary."""

    def register(loop: Loop) -> Loop:
        APPLICATIONS.add(name, kind(name, loop))
        return loop

    return register


def numbered(prefix: str, count: int) -> tuple[str, ...]:
    """Names of nodes: sorted by name is sorted by number."""
    width = len(str(count - 1))
    return tuple(f"{prefix}-{i:0{width}}" for i in range(count))


def one_framework(settings: Settings, why: str) -> None:
    """Raise ConfigError, with the reason, where workers compute with several frameworks."""
    if len(set(settings.frameworks)) > 1:
        raise ConfigError(f"{why} Choose one framework.")
