"""Which answer an error of ours becomes: the one place where errors meet HTTP."""

from __future__ import annotations

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
from garfield.split.wire import Refusal


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
