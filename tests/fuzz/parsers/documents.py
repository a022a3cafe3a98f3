"""Documents, as a peer may send them: parsed whole and bounded, or refused."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import strategies as st

from garfield.transport.documents import DEEPEST, LARGEST, DocumentKind, parse_document
from tests.fuzz.target import bent, fuzzed

KIND = DocumentKind("fuzzed", most_bytes=400)
WHOLE = {
    "round": 7, "counts": [3, 0, 12], "memory_mb": 512.5, "name": "Zo\u00eb \U0001f9ed \x00",
    "deep": [[[{"a": None}]]], "is": True, "": {},
}  # fmt: skip
ODD = [
    b"{}", b"[]", b"null", b"", b"[" * 400, b'{"a":' * 60 + b"1" + b"}" * 60, b'{"a": NaN}',
    b'{"a": -Infinity}', b'{"a": 1e309}', b'{"a": 1, "a": 1}', b'{"a": "\\ud800"}',
    b'{"a": "\\"[["}',
    b'{"a": ' + b"1" * 300 + b"}", b'{"a": 0.' + b"1" * 300 + b"}", b'{"a": 1}{}', b'{"a": "\\',
    b'{"__class__": "os.system", "args": ["true"]}', b"\x80\x04\x95", b'{"\\ud83d\\ude00": 1}',
]  # fmt: skip
BEGIN = [json.dumps(WHOLE).encode(), *ODD]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)
TEXTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4).map(
    lambda value: json.dumps(value).encode()
)


@fuzzed("document", begin_from=BEGIN, inputs=bent(BEGIN) | TEXTS)
def document(data: bytes) -> None:
    """One is refused with a ValueError, or is plain, finite, shallow, and can be written again."""
    try:
        found = parse_document(data)
    except ValueError as problem:
        assert str(problem)
        assert str(problem).isprintable()
        return
    assert isinstance(found, dict)
    assert len(data) <= LARGEST
    _check_plain(found, DEEPEST)
    again = json.dumps(found, allow_nan=False).encode()
    assert parse_document(again) == found
    json.dumps(found, ensure_ascii=False).encode()


def _check_plain(value: object, depth: int) -> None:
    if isinstance(value, (dict, list)):
        assert depth > 0
        for item in value.values() if isinstance(value, dict) else value:
            _check_plain(item, depth - 1)
    else:
        assert value is None or type(value) in (bool, int, float, str)


@fuzzed(
    "document payload", begin_from=[text.ljust(400, b"\0") for text in BEGIN if len(text) < 400]
)
def document_payload(data: bytes) -> None:
    """A vector of the right length is a document or a lie, and never anything else."""
    row = np.frombuffer(data.ljust(400, b"\0")[:400], np.float32)
    flaw = KIND.flaw(row)
    if flaw is None:
        assert KIND.to_payload(KIND.read(row)).size == KIND.length == row.size
    else:
        assert flaw.reason.proof
        assert flaw.detail.isprintable()
