"""Secure aggregation: a server learns the sum of devices' vectors, and nothing of any one of them.

The protocol of Bonawitz et al., "Practical secure aggregation for privacy-preserving machine
learning", CCS 2017 (Figure 4, for a server that keeps to it and is curious), with self masks:

    device                                    server
    1  advertise  two public keys        ──▶  who is in
    2  share      its secrets in pieces  ──▶  passed on, sealed for each receiver
    3  mask       vector + masks         ──▶  added up; of one device it is uniformly random
    4  reveal     pieces for the lost    ──▶  unmask: the sum of all who got to step 3

Every two devices agree on a mask by X25519 that the one adds and the other subtracts: in the sum
they vanish. If one of the two is lost between steps 2 and 3, `threshold` of the others give the
pieces of its key, and its masks are taken out. Beside these each device adds a mask of its own,
whose pieces are given only for those whose vector arrived: so a vector that comes late, after
its pairwise masks were revealed, stays hidden. A device gives one or the other, once.

Vectors are fixed-point numbers modulo 2³² or 2⁶⁴ (`fixed_point`), so the sum is exact and its
distance to the plain sum is known. `device` and `server` are the two sides, with no network in
them; `shamir` and `masks` are what they are made of.

What it does not do: a server that lies about who is there, or that plays several devices itself, is
kept from a single vector only if fewer than `threshold` devices help it, and more than half must
be honest for that. And a sum says nothing of who spoilt it, so no robust rule can stand behind it.
"""

from __future__ import annotations

from garfield.core.errors import ConfigError
from garfield.fedgan.secure_aggregation.device import AggregationDevice, Revealed
from garfield.fedgan.secure_aggregation.fixed_point import FixedPoint
from garfield.fedgan.secure_aggregation.masks import PublicKeys
from garfield.fedgan.secure_aggregation.server import AggregationServer

__all__ = [
    "AggregationDevice", "AggregationServer", "FixedPoint", "PublicKeys", "Revealed",
    "check_rule_allows_it",
]  # fmt: skip

_SUMS = frozenset({"mean", "average"})


def check_rule_allows_it(rule: str) -> None:
    """Refuse secure aggregation together with a rule that compares devices with each other."""
    if rule not in _SUMS:
        raise ConfigError(
            f"Secure aggregation shows the server the sum of the devices' models and none of them, "
            f"and {rule} has to compare them with each other. Leave one of the two out: average "
            "them securely, or let the server see them."
        )
