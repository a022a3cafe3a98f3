"""Spied kinds: the experiment's own channel, by which omniscient liars learn what the honest say.

No honest node answers whoever asks; what a liar knows of others' vectors must not come through
their doors, or a run would measure a leak. So an experiment that declares an attack which knows
all has a channel of its own: to each kind of vector a spied one, which an honest outbox answers
with the same vector, but to the names in its `spied_by` alone. That is empty unless the
run's own settings declare such an attack.
"""

from __future__ import annotations

from dataclasses import replace

from garfield.transport.contract import (
    AGGREGATE,
    CODED,
    GRADIENT,
    MODEL,
    PROPOSAL,
    Key,
    VectorKind,
    declare_kind,
)

_PREFIX = "spied-"

SPIED: dict[str, VectorKind] = {
    kind.name: declare_kind(replace(kind, name=_PREFIX + kind.name, lossy=False))
    for kind in (MODEL, GRADIENT, PROPOSAL, AGGREGATE, CODED)
}
"""The spied kind of each."""


def is_spied(key: Key) -> bool:
    """Whether this is asked by the experiment's channel."""
    return key.kind.startswith(_PREFIX)


def spied(key: Key) -> Key:
    """What a spy asks for, to learn what is published under `key`."""
    return replace(key, kind=SPIED[key.kind].name)


def plain(key: Key) -> Key:
    """What a spy learns, that asks for this spied key."""
    return replace(key, kind=key.kind.removeprefix(_PREFIX))
