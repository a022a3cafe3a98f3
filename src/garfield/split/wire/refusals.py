"""Why a request was not answered: by a `Refusal`, never by prose alone.

`as_refusal` is the one place where errors of the library meet HTTP.
"""

from __future__ import annotations

import json
from enum import Enum

from garfield.core.errors import (
    AccessDenied,
    ConfigError,
    GarfieldError,
    InputError,
    ObjectDamaged,
    ObjectMissing,
    RequestRefused,
    StoreUnreachable,
)
from garfield.core.files import as_json

MAX_FRAME = 8 << 20  # bytes of a frame of features, and of a refusal


class Refusal(Enum):
    """Why a request was not answered; the value is its name in JSON and its HTTP status."""

    MALFORMED = ("malformed", 400)
    UNAUTHORISED = ("unauthorised", 401)
    FORBIDDEN = ("forbidden", 403)
    MISSING = ("missing", 404)
    SLOW = ("slow", 408)
    TOO_LARGE = ("too-large", 413)
    BROKEN_OBJECT = ("broken-object", 422)
    BAD_MODEL = ("bad-model", 422)
    FAILED = ("failed", 500)
    STORE = ("store", 502)
    BUSY = ("busy", 503)
    OUT_OF_MEMORY = ("out-of-memory", 507)

    @property
    def word(self) -> str:
        """Its name in JSON."""
        return self.value[0]

    @property
    def status(self) -> int:
        """The HTTP status that goes with it."""
        return self.value[1]

    @property
    def passes(self) -> bool:
        """Whether another server, or the same one later, may answer the same request."""
        return self in (Refusal.SLOW, Refusal.FAILED, Refusal.STORE, Refusal.BUSY)

    @classmethod
    def named(cls, word: object) -> Refusal:
        """The refusal of that name; FAILED for one that we do not know."""
        return next((each for each in cls if each.word == word), cls.FAILED)

    def error(self, message: str) -> RequestRefused:
        """The exception for it."""
        return RequestRefused(message, self.word, self.status)


def as_body(refused: RequestRefused) -> bytes:
    """A refusal as the JSON body of an answer."""
    return as_json({"error": refused.refusal, "message": str(refused)}).encode()


def from_body(body: bytes, status: int) -> RequestRefused:
    """The refusal that an answer's body tells, whatever it holds."""
    try:
        told = json.loads(body[:MAX_FRAME])
        refusal, message = Refusal.named(told["error"]), str(told["message"])[:1000]
    except (ValueError, TypeError, KeyError, RecursionError):
        by_status = next((each for each in Refusal if each.status == status), Refusal.FAILED)
        return by_status.error(f"The server answered {status} and did not say why.")
    return refusal.error(message)


def as_refusal(error: GarfieldError, otherwise: Refusal = Refusal.MALFORMED) -> RequestRefused:
    """The refusal that tells a client of this error; `otherwise` for input that is wrong."""
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, AccessDenied):
        denied = Refusal.UNAUTHORISED if error.status == 401 else Refusal.FORBIDDEN
        return denied.error(str(error))
    if isinstance(error, ObjectMissing):
        return Refusal.MISSING.error(str(error))
    if isinstance(error, ObjectDamaged):
        return Refusal.BROKEN_OBJECT.error(str(error))
    if isinstance(error, StoreUnreachable):
        return Refusal.STORE.error(str(error))
    if isinstance(error, (ConfigError, InputError)):
        return otherwise.error(str(error))
    return Refusal.FAILED.error(str(error))
