"""Documents that nodes publish: bounded where they are written, and where they are read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from garfield.core.errors import ConfigError, InputError
from garfield.nodes.outbox import Outbox
from garfield.transport.contract import Key, Ready, declare_kind
from garfield.transport.documents import DEEPEST, DocumentKind, document_kind, parse_document

TASK = declare_kind(DocumentKind("task", most_bytes=64))


def nested(depth):
    value = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def test_a_document_is_kept_by_an_outbox_as_vectors_are():
    box = Outbox()
    box.publish(Key("task", 3), TASK.to_payload({"steps": 30}))
    answer = box.answer("device-1", Key("task", 3))
    assert isinstance(answer, Ready)
    assert TASK.read(answer.payload) == {"steps": 30}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"a": "x" * 57}, "has at most 64 bytes, and this one 65. Say less in it."),
        ({"a": float("nan")}, "No document of kind task"),
        ({"a": b"bytes"}, "No document of kind task"),
        ({"a": {1, 2}}, "No document of kind task"),
        ([1], "it is no JSON object"),
        ({"a": "\ud800"}, "No document of kind task"),
        ({"a": 10**40}, "a number has 41 digits"),
    ],
)
def test_what_would_be_refused_is_not_published(document, said):
    with pytest.raises(InputError, match=said):
        TASK.to_payload(document)


def test_the_longest_and_the_deepest_are_in_order():
    assert len(TASK.to_payload({"a": "x" * 56})) == TASK.length == 16
    kind = DocumentKind("deep", most_bytes=1000)
    assert kind.read(kind.to_payload(nested(DEEPEST))) == nested(DEEPEST)
    with pytest.raises(InputError, match="nested 17 deep and may be 16"):
        kind.to_payload(nested(DEEPEST + 1))
    brackets = {"a": "[{" * 100, "\\": '"[['}
    assert kind.read(kind.to_payload(brackets)) == brackets


@given(st.binary(max_size=64).filter(bytes.isascii))
def test_no_ascii_text_is_a_number_that_is_not_finite(text):
    assert np.isfinite(np.frombuffer(text.ljust(64, b"\x7f"), np.float32)).all()


@pytest.mark.parametrize("most_bytes", [0, -1, 3, 65537])
def test_a_kind_has_a_bound(most_bytes):
    with pytest.raises(ConfigError, match="most_bytes must be within"):
        DocumentKind("task", most_bytes=most_bytes)


def test_a_kind_of_vectors_has_no_documents():
    with pytest.raises(InputError, match="Under gradient vectors are kept"):
        document_kind(Key("gradient", 1))


def test_a_text_beyond_all_bounds_is_not_even_looked_at():
    with pytest.raises(ValueError, match="it has 70000 bytes and may have 65536"):
        parse_document(b"[" * 70000)
