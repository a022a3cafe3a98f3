"""Which cases of a long list stand for the others in `make test`."""

from collections.abc import Iterable
from typing import Any

import pytest


def heavy_but(cases: Iterable[Any], *few: Any) -> list[Any]:
    """All of them, for `make test-heavy`; only `few` for `make test`. A tuple is several values."""
    return [each if each in few else _heavy(each) for each in cases]


def _heavy(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.heavy)
