"""How many requests anybody may have under way at once.

A request counts for the address that it comes from until the store has confirmed the rights that
it brings, and for the tenant whose rights these are, at that address, from then on. So tenants
behind one proxy do not take each other's seats, a stranger who invents tokens is one address,
however many, and whoever a tenant lets read its objects takes none of the seats that the tenant
has elsewhere.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from garfield.split.wire import Refusal


class Holder(NamedTuple):
    """Whom a request counts for."""

    whose: str
    """As a refusal says it: from this address, of this tenant."""
    name: str


class Seats:
    """Requests under way, by whom they count for. Belongs to one event loop."""

    def __init__(self, most: int) -> None:
        """`most` is how many there may be from one address, and of one tenant."""
        self._most = most
        self.held: Counter[Holder] = Counter()
        """Of everybody who has any."""

    def taken(self, address: str) -> Seat:
        """A seat for a request from there; refused if that address has too many already."""
        return Seat(self, address)

    def take(self, holder: Holder) -> None:
        if self.held[holder] >= self._most:
            raise Refusal.BUSY.error(
                f"{self.held[holder]} requests {holder.whose} wait or run already."
            )
        self.held[holder] += 1

    def give_back(self, holder: Holder) -> None:
        self.held[holder] -= 1
        if not self.held[holder]:
            del self.held[holder]


class Seat:
    """What one request counts as, until it leaves."""

    def __init__(self, seats: Seats, address: str) -> None:
        self._seats, self._address, self._left = seats, address, False
        self.holder = Holder("from this address", address)
        """Whom it counts for now."""
        seats.take(self.holder)

    def confirmed(self, tenant: str) -> None:
        """Count for this tenant from now on; refused if it has too many requests already."""
        holder = Holder("of this tenant", f"{tenant} {self._address}")
        self._seats.take(holder)
        self._seats.give_back(self.holder)
        self.holder = holder

    def leave(self) -> None:
        """The request has ended; told again, nothing happens."""
        if not self._left:
            self._left = True
            self._seats.give_back(self.holder)
