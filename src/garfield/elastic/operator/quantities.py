"""Amounts and moments as Kubernetes writes them: 4, 500m, 16Gi; 2026-01-31T12:00:00Z."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction

_UNITS: dict[str, int | Fraction] = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip


def amount(quantity: str | int | float) -> Fraction:
    """The number that a quantity stands for; 0 for what is none."""
    text = str(quantity).strip()
    unit = next((each for each in ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei") if text.endswith(each)), "")
    if not unit and text[-1:] in _UNITS:
        unit = text[-1]
    try:
        return Fraction(text.removesuffix(unit)) * _UNITS.get(unit, 1)
    except (ValueError, ZeroDivisionError):
        return Fraction(0)


def seconds_of(moment: str) -> float:
    """A moment in seconds since 1970."""
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
