"""Why a peer that was asked brought nothing that counts.

Code decides by the `Reason` alone; a `Silence` adds the detail, which is for
people and may be reworded at will. Both go to disk: readers take the reason
from its own field.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Reason(Enum):
    """Each is as it is written to disk."""

    NOT_NEEDED = "not needed"
    """Others were enough, and the request was cancelled."""
    GONE = "gone"
    """The peer is past the step that was asked for."""
    WAITS_FOR_OTHERS = "waits for others"
    """A collective brings all rows or none, and somebody else's is missing."""
    NO_ANSWER = "no answer"
    UNREACHABLE = "unreachable"
    DISCONNECTED = "disconnected"
    REFUSED = "refused"
    """The peer itself said that it would not answer."""
    TOO_SLOW = "too slow"
    """What came was in order, and time was up before all of it was there."""
    STALLED = "stalled"
    """The peer began to answer and stopped."""
    WRONG_CERTIFICATE = "wrong certificate"
    """Another node of ours listens where the peer should be: that is not the peer's doing."""
    FOREIGN_CERTIFICATE = "foreign certificate"
    """Somebody whom our authority has not certified listens there, in the peer's place."""
    EXPIRED_CERTIFICATE = "expired certificate"
    """What listens there has a certificate that does not hold today, by our clock."""
    NO_CERTIFICATE = "no certificate"
    """What listens there shows none: it does not speak TLS."""
    GARBAGE = "garbage"
    """The answer is none that the protocol knows, or not to what was asked."""
    WRONG_STEP = "wrong step"
    WRONG_SIZE = "wrong size"
    UNSAFE_MEMORY = "unsafe memory"
    """Memory that its sender could still change, or that cannot be read safely."""
    NOT_FINITE = "not finite"
    """A number is NaN or infinite."""

    @classmethod
    def known(cls, value: str) -> bool:
        """Whether this version writes that to disk; another one may have written the rest."""
        return value in cls._value2member_map_

    @property
    def proof(self) -> bool:
        """Whether no honest node does such a thing, however slow or far away it is."""
        return self in _PROOFS

    @property
    def blameless(self) -> bool:
        """Whether it is nobody's fault, or somebody else's."""
        return self in _BLAMELESS

    @property
    def may_pass(self) -> bool:
        """Whether the same question may yet be answered, though the pull ended before its time."""
        return self in _MAY_PASS


_MAY_PASS = frozenset({Reason.STALLED, Reason.TOO_SLOW, Reason.NO_ANSWER})
_BLAMELESS = frozenset({Reason.NOT_NEEDED, Reason.GONE, Reason.WAITS_FOR_OTHERS})
_PROOFS = frozenset(
    {
        Reason.GARBAGE,
        Reason.WRONG_STEP,
        Reason.WRONG_SIZE,
        Reason.UNSAFE_MEMORY,
        Reason.NOT_FINITE,
    }
)


@dataclass(frozen=True)
class Silence:
    """Why one peer was not heard in one pull."""

    reason: Reason
    detail: str
    """A text for people: "sent 12 of 40 bytes"."""

    def __str__(self) -> str:
        return self.detail

    def to_json(self) -> dict[str, str]:
        return {"reason": self.reason.value, "detail": self.detail}


NOT_NEEDED = Silence(Reason.NOT_NEEDED, "not needed")
NOT_FINITE = Silence(Reason.NOT_FINITE, "not finite")


def no_answer(timeout_s: float) -> Silence:
    """Nothing came from the peer in that time."""
    return Silence(Reason.NO_ANSWER, f"no answer in {timeout_s:.3g} s")


def gone(now: int) -> Silence:
    """The peer says that it is at step `now`."""
    return Silence(Reason.GONE, f"gone, now at {now}")
