"""A small, seeded portion of the fuzzing: the same examples in every run."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.target import Target, bent, targets

EXAMPLES = 200


@pytest.mark.parametrize("target", targets().values(), ids=lambda target: target.name)
def test_no_input_breaks_a_parser(target: Target) -> None:
    for data in target.begin_from:
        target.check(data)

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(target.inputs)
    def check(data: bytes) -> None:
        target.check(data)

    check()


def test_bending_reaches_a_bug_that_random_bytes_do_not() -> None:
    """A parser that chokes on one wrong byte inside what is otherwise in order."""
    whole = b"headers:" + bytes(20)

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(bent([whole]))
    def check(data: bytes) -> None:
        assert not (data[:8] == whole[:8] and len(data) == len(whole) and data != whole)

    with pytest.raises(AssertionError):
        check()
