"""Kinds of vectors are declared once, and a key of any other is refused."""

import numpy as np
import pytest

from garfield.core.errors import ConfigError, UnknownName
from garfield.transport.contract import GRADIENT, Key, VectorKind, declare_kind, kind_named


def test_a_key_of_an_unknown_kind_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownName, match="Did you mean gradient"):
        Key("gradeint", 7)


def test_a_declared_kind_is_known_and_declaring_it_again_changes_nothing():
    kind = declare_kind(VectorKind("logits", kept_steps=1))
    assert declare_kind(VectorKind("logits", kept_steps=1)) == kind_named("logits") == kind
    assert (Key("logits", 0).dtype, Key("logits", 0).kept_steps) == (np.float32, 1)


def test_one_name_is_not_two_kinds():
    with pytest.raises(ConfigError, match="gradient is a kind of vector already"):
        declare_kind(VectorKind("gradient", dtype=np.dtype(np.float64)))
    assert GRADIENT.dtype == np.float32


def test_only_float32_may_be_lost_in_parts():
    with pytest.raises(ConfigError, match="only float32 travels in datagrams"):
        VectorKind("wide", dtype=np.dtype(np.float64), lossy=True)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.complex128, object])
def test_numbers_are_floats_or_words(dtype):
    with pytest.raises(ConfigError, match="float or uint of 4 or 8 bytes"):
        VectorKind("odd", dtype=np.dtype(dtype))
