"""What must hold in a drill, as violations with names: after each fault, and at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from garfield.apps.settings import Settings
from garfield.core.blame import UNFORESEEN
from garfield.core.errors import ConfigError
from garfield.runs.checkpoints import SUFFIX, Checkpoints, read_checkpoint

WORSE = 0.1
"""How much accuracy a run may lose by faults that it bears."""
MORE_DESCRIPTORS = 64
"""How many more files a node may have open than at its start: connections come and go."""
_OF_OTHERS = ("torchinductor_",)
"""What torch keeps for its next process."""


class Broken(Enum):
    """What did not hold."""

    HANG = "hang"
    """The run neither goes on nor ends."""
    EXIT_CODE = "exit code"
    ORPHAN = "orphan"
    """A process is left of a run that has ended."""
    DESCRIPTOR = "descriptor"
    """A node has ever more files open."""
    FILE = "file"
    """Something is left in the directory for temporary files, or half-written in the run's."""
    MEMORY = "memory"
    """Something is left in shared memory."""
    CHECKPOINT = "checkpoint"
    """A checkpoint cannot be read, or was there and is not gone on from."""
    MODEL = "model"
    """An honest server's model is not finite, or far worse than it was."""
    FRAMED = "framed"
    """An honest node is said to have lied."""
    MESSAGE = "message"
    """A failure is told by a traceback, as not foreseen, or not at all."""


@dataclass(frozen=True)
class Violation:
    """One thing that did not hold."""

    broken: Broken
    detail: str

    def __str__(self) -> str:
        return f"{self.broken.value}: {self.detail}"


def checkpoints(directories: Iterable[Path]) -> list[Violation]:
    """Every checkpoint can be read, and no part of one lies about."""
    found = []
    for directory in directories:
        for path in sorted(directory.glob(f"*{SUFFIX}")):
            try:
                saved = read_checkpoint(path)
            except ConfigError as problem:
                found.append(Violation(Broken.CHECKPOINT, str(problem)))
                continue
            if not np.isfinite(saved.vector).all():
                found.append(Violation(Broken.MODEL, f"{path.name} is not finite"))
    return found


def half_written(directories: Iterable[Path]) -> list[Violation]:
    """No part of a file is left by whoever was killed while writing it."""
    parts = [path for directory in directories for path in directory.rglob(".*.part")]
    return [Violation(Broken.FILE, f"{path} was left half-written") for path in parts]


def newest_step(directories: Mapping[str, Path], holders: int) -> int:
    """The newest step of which so many servers have a checkpoint; 0 if there is none."""
    steps = [set(Checkpoints(path).saved(name)) for name, path in directories.items()]
    every = sorted(set().union(*steps), reverse=True)
    return next((step for step in every if sum(step in own for own in steps) >= holders), 0)


def resumable_step(settings: Settings, place: Callable[[str], Path]) -> int:
    """The newest step that a run must go on from: f + 1 of its servers have it, one is honest."""
    servers, f = settings.honest_servers, settings.numbers.f_ps
    holders = min(f + 1, len(servers)) if len(servers) > 1 else 1
    return newest_step({name: place(name) for name in servers}, holders)


def temporary(directory: Path) -> list[Violation]:
    """Nothing is left where temporary files go."""
    left = sorted(path.name for path in directory.iterdir() if not path.name.startswith(_OF_OTHERS))
    return [Violation(Broken.FILE, f"{name} was left in TMPDIR") for name in left]


def shared_memory(before: frozenset[str]) -> list[Violation]:
    """Nothing of ours is left in shared memory that was not there before."""
    left = sorted(name for name in shared_names() - before if "garfield" in name)
    return [Violation(Broken.MEMORY, f"{name} was left in /dev/shm") for name in left]


def shared_names() -> frozenset[str]:
    """What is in shared memory now."""
    place = Path("/dev/shm")
    return frozenset(path.name for path in place.iterdir()) if place.is_dir() else frozenset()


def descriptors(before: Mapping[str, int], now: Mapping[str, int]) -> list[Violation]:
    """No node has many more files open than when it had just started."""
    return [
        Violation(Broken.DESCRIPTOR, f"{name} has {now[name]} files open, and had {before[name]}")
        for name in sorted(now.keys() & before.keys())
        if now[name] > before[name] + MORE_DESCRIPTORS
    ]


def models(last: Mapping[str, float], best: Mapping[str, float]) -> list[Violation]:
    """No honest server that tells its accuracy ends far below the best that it had."""
    return [
        Violation(Broken.MODEL, f"{name} ends at {last[name]:.1%}, and was at {best[name]:.1%}")
        for name in sorted(last)
        if last[name] < best[name] - WORSE
    ]


def framed(accused: Mapping[str, Iterable[str]], liars: Iterable[str]) -> list[Violation]:
    """No honest node accuses another one."""
    lying = frozenset(liars)
    return [
        Violation(Broken.FRAMED, f"{asker} says that it has proof against {which}")
        for asker, whom in sorted(accused.items())
        if asker not in lying
        for which in sorted(whom)
        if which.partition(":")[0] not in lying
    ]


def messages(logs: Mapping[str, str]) -> list[Violation]:
    """Nobody was shown a traceback, and every failure was one that we had thought of."""
    found = []
    for name, text in sorted(logs.items()):
        if "Traceback (most recent call last)" in text:
            what = f"{name} printed a traceback: {_error_line(text)}"
            found.append(Violation(Broken.MESSAGE, what))
        for line in text.splitlines():
            if UNFORESEEN in line:
                found.append(Violation(Broken.MESSAGE, f"{name} said: {line}"))
    return found


def _error_line(text: str) -> str:
    after = text.rpartition("Traceback (most recent call last)")[2].splitlines()[1:]
    whole = [line for line in after if line and not line.startswith(" ")]
    return whole[0] if whole else "(empty)"
