"""Small documents between nodes: what a device has, what it shall do. JSON, bounded, no code.

    ASSIGNMENT = declare_kind(DocumentKind("assignment", most_bytes=1024))
    outbox.publish(Key("assignment", 7), ASSIGNMENT.to_payload({"steps": 30, "batch": 50}))
    found = pull_documents(transport, ["server-0"], Key("assignment", 7), ...)
    found.documents["server-0"]["steps"]

A document travels as any vector does, over every transport: it is the text of a JSON object in
ASCII, padded with zeros to the length of its kind, and seen as float32. No byte of ASCII has
its highest bit set, so no four of them are a NaN or an infinity, whose exponents are all ones.

What arrives is held to its kind before it counts (`VectorKind.flaw`): a text that is no JSON, is
nested too deeply, repeats a name, or has a number that a float64 cannot hold, is silence, and
proof of a lie. So what a pull brings are documents, and none that a reader must fear; what stands
in them is for the reader to check.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from garfield.core.bounds import Within, check_number
from garfield.core.errors import InputError
from garfield.core.silence import Reason, Silence
from garfield.transport.contract import (
    Key,
    Payload,
    Replies,
    Transport,
    Until,
    VectorKind,
    kind_named,
)

Document: TypeAlias = dict[str, Any]
"""A JSON object: names to null, truth values, numbers, texts, lists and objects."""

LARGEST = 1 << 16
"""Bytes that a document of any kind may have."""
DEEPEST = 16
"""Lists and objects inside each other, the document itself included."""
_LONGEST_NUMBER = 32  # characters: more than any float64 or 64-bit integer needs
_NUMBER = 4  # bytes of a float32


@dataclass(frozen=True)
class DocumentKind(VectorKind):
    """A kind whose vectors are documents."""

    most_bytes: int = 4096
    """The length of its text at most; so much travels, however short it is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(f"{self.name}.most_bytes", self.most_bytes, Within(_NUMBER, LARGEST))

    @property
    def length(self) -> int:
        """How many float32 travel."""
        return -(-self.most_bytes // _NUMBER)

    def to_payload(self, document: Mapping[str, Any]) -> Payload:
        """A document as it is published; InputError if it is too long or deep, or no JSON."""
        text = _written(self.name, document)
        if len(text) > self.most_bytes:
            raise InputError(
                f"A document of kind {self.name} has at most {self.most_bytes} bytes, and this "
                f"one {len(text)}. Say less in it."
            )
        try:
            parse_document(text)
        except ValueError as problem:
            raise InputError(f"No document of kind {self.name}: {problem}.") from None
        return np.frombuffer(text.ljust(self.length * _NUMBER, b"\0"), np.float32)

    def read(self, payload: Payload) -> Document:
        """The document that was published; ValueError says why it is none."""
        padded = payload.tobytes()
        text = padded.rstrip(b"\0")
        if len(text) > self.most_bytes:
            raise ValueError(f"it has {len(text)} bytes and may have {self.most_bytes}")
        return parse_document(text)

    def flaw(self, payload: Payload) -> Silence | None:
        """Why what a peer has sent is no document."""
        try:
            self.read(payload)
        except ValueError as problem:
            return Silence(Reason.GARBAGE, f"sent no document: {problem}")
        return None


@dataclass(frozen=True)
class DocumentReplies:
    """What a pull of documents brought."""

    documents: Mapping[str, Document]
    """By sender, ordered by name."""
    replies: Replies
    """The rest of it: who was silent and why, who is past that step, and the newest steps."""


def pull_documents(
    transport: Transport,
    peers: Sequence[str],
    key: Key,
    *,
    until: Until,
    timeout_s: float,
    stall_s: float | None = None,
) -> DocumentReplies:
    """Ask all peers at once for the document under `key`; see `Transport.pull`."""
    kind = document_kind(key)
    replies = transport.pull(
        peers, key, length=kind.length, until=until, timeout_s=timeout_s, stall_s=stall_s
    )
    pairs = zip(replies.names, replies.rows, strict=True)
    return DocumentReplies({name: kind.read(row) for name, row in pairs}, replies)


def document_kind(key: Key) -> DocumentKind:
    """The kind of a key; InputError if its vectors are no documents."""
    kind = kind_named(key.kind)
    if not isinstance(kind, DocumentKind):
        raise InputError(f"Under {key.kind} vectors are kept, and no documents.")
    return kind


# -- text -------------------------------------------------------------------------------------


def parse_document(text: bytes) -> Document:
    """A JSON object from anybody: bounded before it is parsed; ValueError for anything else."""
    if len(text) > LARGEST:
        raise ValueError(f"it has {len(text)} bytes and may have {LARGEST}")
    if not text.isascii():
        raise ValueError("it is not ASCII")
    depth = _depth(text)
    if depth > DEEPEST:
        raise ValueError(f"it is nested {depth} deep and may be {DEEPEST}")
    try:
        found = _DECODER.decode(text.decode("ascii"))
    except json.JSONDecodeError as problem:
        raise ValueError(f"it is no JSON, at character {problem.pos}") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    if b"\\u" in text:
        _check_texts(found)
    return found


def _written(kind: str, document: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(f"No document of kind {kind}: {problem}.") from None
    return text.encode("ascii")


def _depth(text: bytes) -> int:
    """How deep lists and objects are inside each other; brackets in texts do not count."""
    deepest = depth = at = 0
    while at < len(text):
        letter = text[at]
        if letter == 0x22:  # a text: to its end
            at += 1
            while at < len(text) and text[at] != 0x22:
                at += 2 if text[at] == 0x5C else 1
        elif letter in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in b"]}":
            depth -= 1
        at += 1
    return deepest


def _check_texts(value: Any) -> None:
    """Refuse halves of a surrogate pair: nobody could write or print them again."""
    if isinstance(value, str):
        value.encode()  # UnicodeEncodeError is a ValueError
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_texts(name)
            _check_texts(item)
    elif isinstance(value, list):
        for item in value:
            _check_texts(item)


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


def _real(digits: str) -> float:
    number = float(digits) if len(digits) <= _LONGEST_NUMBER else math.inf
    if not math.isfinite(number):
        raise ValueError("a number is too large or too long")
    return number


def _constant(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _object(pairs: list[tuple[str, Any]]) -> Document:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


_DECODER = json.JSONDecoder(
    parse_int=_integer, parse_float=_real, parse_constant=_constant, object_pairs_hook=_object
)
