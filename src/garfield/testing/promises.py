"""How a check is run, and how it says what was promised.

A check is a function of what it checks; the first line of its docstring is the promise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

Subject = TypeVar("Subject")
Check = Callable[[Subject], None]


@dataclass(frozen=True)
class Broken:
    """A promise that was not kept."""

    promise: str
    why: str
    error: Exception
    """What was raised: by the check, or by what it checks."""


def try_out(check: Check[Subject], subject: Subject) -> Broken | None:
    """Run one check; what it found, whichever way it fails, or None if the promise is kept."""
    try:
        check(subject)
    except AssertionError as failure:
        return Broken(promise_of(check), str(failure), failure)
    except Exception as failure:
        raised = f"It raised {type(failure).__name__}: {failure}"
        return Broken(promise_of(check), raised, failure)
    return None


def promise_of(check: Check[Subject]) -> str:
    """What a check is about, in a sentence without its full stop."""
    return (check.__doc__ or check.__name__).partition("\n")[0].rstrip(".")


def keep(check: Check[Subject], subject: Subject, name: str) -> None:
    """Run one check; AssertionError with its promise, whichever way it fails."""
    broken = try_out(check, subject)
    if broken is not None:
        raise AssertionError(
            f"{name} breaks a promise: {broken.promise}. {broken.why}"
        ) from broken.error


def keep_all(checks: Iterable[Check[Subject]], subject: Subject, name: str) -> None:
    """Run all checks, up to the first that fails."""
    for check in checks:
        keep(check, subject, name)


def expect(kept: Any, otherwise: str) -> None:
    """AssertionError unless `kept`; not an assert, which python -O leaves out."""
    if not kept:
        raise AssertionError(otherwise)


@contextmanager
def refused(error: type[Exception], match: str, what: str) -> Iterator[None]:
    """AssertionError unless the block raises that error, with words that match."""
    try:
        yield
    except error as refusal:
        expect(re.search(match, str(refusal)), f"{what} is refused with other words: {refusal}")
        return
    raise AssertionError(f"{what} is not refused with a {error.__name__}.")


def spread_out(n: int, d: int, seed: int, dtype: Any = np.float32) -> Any:
    """(n, d) normal numbers, the same for the same seed."""
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


def close(result: Any, expected: Any, rows: Any, tolerance: float = 1e-5) -> bool:
    """Equal within a fraction of how large the rows are."""
    result, expected = np.asarray(result, np.float64), np.asarray(expected, np.float64)
    return bool(np.abs(result - expected).max() <= tolerance * max(np.abs(rows).max(), 1e-30))
