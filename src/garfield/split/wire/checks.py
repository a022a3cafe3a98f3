"""What values of a request or an answer may be; anything else is refused as malformed."""

from __future__ import annotations

import json
import re
from typing import Any

from garfield.core.bounds import shown
from garfield.split.wire.refusals import Refusal

_HASH = re.compile(r"[0-9a-f]{64}")


def json_object(text: bytes, what: str) -> dict[str, Any]:
    """A JSON object without repeated names and numbers that are none."""
    try:
        found = json.loads(
            text.decode("utf-8"), object_pairs_hook=_once, parse_constant=_not_finite
        )
    except (ValueError, RecursionError) as problem:  # a UnicodeDecodeError is one
        raise Refusal.MALFORMED.error(f"{what} is not JSON: {shown(str(problem))}.") from None
    if not isinstance(found, dict):
        raise Refusal.MALFORMED.error(f"{what} is not a JSON object.")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands in it twice")
    return found


def _not_finite(text: str) -> None:
    raise ValueError(f"{text} is no number")


def check_name(what: str, name: object) -> None:
    """Refuse a name that could mean anything but an object below its prefix."""
    check_text(what, name, 1024)
    if name is None or any(part in ("", ".", "..") for part in str(name).split("/")):
        raise Refusal.MALFORMED.error(f"{what} must be a plain name, got {shown(name)}.")


def check_text(what: str, value: object, most: int, *, printable: bool = True) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise Refusal.MALFORMED.error(f"{what} must be a text of 1..{most} characters.")
    if printable and not value.isprintable():
        raise Refusal.MALFORMED.error(f"{what} must be printable, got {shown(value)}.")


def check_hash(what: str, value: object) -> None:
    if value is not None and not (isinstance(value, str) and _HASH.fullmatch(value)):
        raise Refusal.MALFORMED.error(
            f"{what} must be the 64 hexadecimal digits of a SHA-256, got {shown(value)}."
        )


def check_number(what: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise Refusal.MALFORMED.error(
            f"{what} must be a whole number within {least}..{most}, got {shown(value)}."
        )


def check_choice(what: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise Refusal.MALFORMED.error(f"{what} must be one of {known}, got {shown(value)}.")
