"""A schedule of faults: which, whom and when, drawn from a seed, as data.

A fault strikes so many steps after the run has gone on from the one before, and lasts so many
seconds; so one schedule fits a fast machine and a busy one, real time and a virtual clock. One
node is struck at a time: what a run bears at once is its own f, and that is for the settings.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

from garfield.core.errors import ConfigError, UnknownName

LAUNCHER = "launcher"
"""The node of a fault that is meant for `garfield train` itself."""

LATEST_STEP = 12
"""A fault strikes at most so many steps after the one before."""


class FaultKind(Enum):
    """Each is as users name it."""

    KILL = "kill"
    """SIGKILL; later it is started again."""
    RESTART = "restart"
    """SIGTERM, as an operator ends it; then it is started again."""
    INTERRUPT = "interrupt"
    """Ctrl-C; then it is started again."""
    FREEZE = "freeze"
    """SIGSTOP, and SIGCONT when it is over."""
    CUT = "cut"
    """Nothing passes on any of its links, and nobody is told."""
    REFUSE = "refuse"
    """Its connections are closed, and new ones refused, at both ends."""
    SLOW = "slow"
    """All that passes on its links comes late."""
    FULL_DISK = "full-disk"
    """Nothing that it writes to a file is taken."""
    HOSTILE = "hostile"
    """A stranger opens connections to it, and sends nonsense or nothing."""
    IMPOSTOR = "impostor"
    """It is killed, and a stranger answers in its place until it is started again."""


class StageKind(Enum):
    """Where a drill takes place."""

    MEMORY = "memory"
    """`garfield train`: processes of one machine that pass sealed memory."""
    TCP = "tcp"
    """`garfield node` processes that talk by plain TCP on loopback."""
    TLS = "tls"
    """The same by mutual TLS."""
    SIMULATION = "simulation"
    """All nodes in one process, on a virtual clock."""


_TO_LAUNCHER = {
    StageKind.MEMORY: (
        FaultKind.INTERRUPT, FaultKind.RESTART, FaultKind.KILL, FaultKind.FULL_DISK,
    ),
    StageKind.TCP: (),
    StageKind.TLS: (),
    StageKind.SIMULATION: (FaultKind.INTERRUPT, FaultKind.KILL),
}  # fmt: skip
_OVER_NETWORK = tuple(FaultKind)
_TO_NODES = {
    StageKind.MEMORY: (FaultKind.KILL, FaultKind.FREEZE, FaultKind.HOSTILE),
    StageKind.TCP: _OVER_NETWORK,
    StageKind.TLS: _OVER_NETWORK,
    StageKind.SIMULATION: (
        FaultKind.KILL, FaultKind.RESTART, FaultKind.FREEZE, FaultKind.CUT, FaultKind.REFUSE,
        FaultKind.SLOW,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One thing that is done to one node."""

    kind: FaultKind
    node: str
    after_steps: int
    """How many steps after all nodes go on again."""
    lasts_s: float
    """How long it is left like that."""
    starting: bool = False
    """Whether it strikes while the run is starting once more: `lasts_s` after that began."""

    def __str__(self) -> str:
        what = f"{self.kind.value} {self.node}"
        if self.starting:
            return f"{what} {self.lasts_s:.1f} s after a start"
        return f"{what} after {self.after_steps} steps, for {self.lasts_s:.1f} s"


@dataclass(frozen=True)
class Schedule:
    """The faults of one drill, in their order."""

    stage: StageKind
    seed: int
    faults: tuple[Fault, ...]


def kinds_of(stage: StageKind) -> tuple[FaultKind, ...]:
    """All that can be done to a run there."""
    return tuple(dict.fromkeys((*_TO_NODES[stage], *_TO_LAUNCHER[stage])))


def chosen_kinds(stage: StageKind, names: Collection[str] = ()) -> tuple[FaultKind, ...]:
    """The kinds of these names, or all that are possible on that stage."""
    known = {kind.value: kind for kind in kinds_of(stage)}
    for name in names:
        if name not in known:
            raise UnknownName(f"a fault of a drill over {stage.value}", name, known)
    return tuple(known[name] for name in names) or tuple(known.values())


def draw(
    seed: int,
    stage: StageKind,
    nodes: Sequence[str],
    count: int,
    *,
    kinds: Collection[FaultKind] = (),
    longest_s: float = 2.5,
) -> Schedule:
    """Draw so many faults against these nodes; the same seed draws the same."""
    if longest_s <= 0:
        raise ConfigError(f"A fault must last longer than 0 s, got {longest_s:g}.")
    rng = Random(f"{seed} {stage.value}")
    wanted = [kind for kind in kinds_of(stage) if not kinds or kind in kinds]
    faults: list[Fault] = []
    down = False
    for _ in range(count):
        faults.append(_draw_one(rng, stage, nodes, wanted, longest_s, down))
        # the launcher starts nobody again: who was killed is back when the run is resumed
        down = stage is StageKind.MEMORY and faults[-1].node != LAUNCHER and (
            down or faults[-1].kind is FaultKind.KILL
        )  # fmt: skip
    return Schedule(stage, seed, tuple(faults))


def _draw_one(
    rng: Random,
    stage: StageKind,
    nodes: Sequence[str],
    wanted: Sequence[FaultKind],
    longest_s: float,
    down: bool,
) -> Fault:
    to_nodes = [kind for kind in wanted if kind in _TO_NODES[stage]]
    to_launcher = [kind for kind in wanted if kind in _TO_LAUNCHER[stage]]
    if down and not (set(to_launcher) - {FaultKind.FULL_DISK}):
        to_launcher.append(FaultKind.RESTART)
    often = 0.5 if stage is StageKind.MEMORY else 0.15
    at_launcher = bool(to_launcher) and (down or not to_nodes or rng.random() < often)
    kind = rng.choice(to_launcher if at_launcher else to_nodes)
    if down and kind is FaultKind.FULL_DISK:
        kind = FaultKind.RESTART
    lasts_s = round(rng.uniform(0.1, 1.0) * longest_s, 2)
    ends = kind in (FaultKind.KILL, FaultKind.RESTART, FaultKind.INTERRUPT)
    starts = stage is StageKind.MEMORY and at_launcher and ends
    starting = starts and rng.random() < 0.3
    node = LAUNCHER if at_launcher else rng.choice(list(nodes))
    return Fault(kind, node, rng.randint(0, LATEST_STEP), lasts_s, starting)
