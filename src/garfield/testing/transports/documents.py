"""Documents: small texts of JSON that are pulled as vectors are, and only if they are in order."""

from __future__ import annotations

from functools import partial

import numpy as np

from garfield.core.silence import Reason
from garfield.testing.network import (
    NAMES,
    Cluster,
    PlainOutbox,
    expect_names,
    expect_reason,
    expect_row,
    expect_silent,
    ready,
    vector,
)
from garfield.testing.promises import expect
from garfield.transport.contract import NEWEST, Answer, Key, Ready, declare_kind, first
from garfield.transport.documents import Document, DocumentKind, DocumentReplies, pull_documents

NOTE = declare_kind(DocumentKind("note", most_bytes=500))
KEY = Key("note", 7)
SAID: Document = {
    "counts": [3, 0, 2**63], "memory_mb": 512.25, "name": "Zoë \x00 \U0001f9ed", "gpu": None,
    "deep": [[{"true": True}]], "": {},
}  # fmt: skip


def _said(document: Document) -> Ready:
    return Ready(NOTE.to_payload(document))


def _text(text: bytes) -> Ready:
    """Any text in the place of a document, as a liar may send it."""
    return Ready(np.frombuffer(text.ljust(4 * NOTE.length, b"\0"), np.float32))


def _pulled(
    cluster: Cluster, count: int, key: Key = KEY, timeout_s: float = 10.0
) -> DocumentReplies:
    asker, *others = cluster.started
    names = [other.name for other in others]
    return cluster.network.run(
        partial(pull_documents, asker, names, key, until=first(count), timeout_s=timeout_s)
    )


def a_document_comes_as_it_was_published(cluster: Cluster) -> None:
    """A document comes as it was published, and is told apart from vectors of its step."""
    _, boxes = cluster.start_all([None, _said(SAID)], key=KEY)
    boxes[1].publish(Key("gradient", 7), vector(1))
    found = _pulled(cluster, 1)
    expect_names(found.replies, "worker-1")
    expect(found.documents == {"worker-1": SAID}, f"{found.documents} came.")
    gradient = cluster.pull(cluster.started[0], ["worker-1"], first(1))
    expect_row(gradient.rows[0], vector(1))


def a_document_is_waited_for(cluster: Cluster) -> None:
    """A document that is not there yet is waited for."""
    _, boxes = cluster.start_all([None, None], key=KEY)
    published = partial(boxes[1].publish, KEY, NOTE.to_payload({"round": 7}))
    done = cluster.network.run_later(0.2, published)
    found = _pulled(cluster, 1)
    done()
    expect(found.documents == {"worker-1": {"round": 7}}, f"{found.documents} came.")


def the_newest_document_says_its_step(cluster: Cluster) -> None:
    """The newest document may be asked for, and comes with its step."""
    newest = Key("note", NEWEST)
    answer = Ready(NOTE.to_payload({"token": 3}), step=41)
    cluster.start_all([None, answer], key=newest)
    found = _pulled(cluster, 1, newest)
    expect(found.documents == {"worker-1": {"token": 3}}, f"{found.documents} came.")
    expect(found.replies.steps == {"worker-1": 41}, f"Of step {found.replies.steps}.")


def what_is_no_document_is_silence(cluster: Cluster) -> None:
    """What is no document counts as silence, is proof of a lie, and others are waited for."""
    lies = [
        b"", b"nonsense", b"[1]", b'{"a": 1, "a": 2}', b'{"a": NaN}', b'{"a": 1e999}',
        b'{"a": ' + b"[" * 60 + b"]" * 60 + b"}", b'{"a": ' + b"9" * 60 + b"}",
        b'{"a": "\\ud800"}', b'{"a": 1}\0{}', b'{"a": "\x01"}',
    ]  # fmt: skip
    for lie in lies:
        answers: list[Answer | None] = [None, _text(lie), _said({"honest": True})]
        cluster.start_all(answers, key=KEY)
        found = _pulled(cluster, 2)
        expect(found.documents == {"worker-2": {"honest": True}}, f"{lie!r} was believed.")
        expect_silent(found.replies, "worker-1")
        expect_reason(found.replies, "worker-1", Reason.GARBAGE)
        cluster.close()


def a_vector_in_the_place_of_a_document_is_silence(cluster: Cluster) -> None:
    """A vector of numbers in the place of a document counts as silence, whatever its length."""
    for length in (NOTE.length, NOTE.length + 1, 1):
        cluster.start_all([None, ready(1, length)], key=KEY)
        found = _pulled(cluster, 1)
        expect_names(found.replies)
        proof = found.replies.silent["worker-1"].reason.proof
        expect(proof, f"{found.replies.silent['worker-1'].reason} is said.")
        cluster.close()


def documents_differ_by_asker(cluster: Cluster) -> None:
    """Each asker is given the document that is meant for it."""

    class Personal(PlainOutbox):
        def answer(self, asker: str, key: Key) -> Answer:
            return _said({"for": asker})

    cluster.start(NAMES[0], Personal())
    for name in NAMES[1:3]:
        asker = cluster.start(name)
        found = cluster.network.run(
            partial(pull_documents, asker, [NAMES[0]], KEY, until=first(1), timeout_s=10.0)
        )
        expect(found.documents == {NAMES[0]: {"for": name}}, f"{found.documents} came.")


CHECKS = (
    a_document_comes_as_it_was_published, a_document_is_waited_for,
    the_newest_document_says_its_step, what_is_no_document_is_silence,
    a_vector_in_the_place_of_a_document_is_silence, documents_differ_by_asker,
)  # fmt: skip
