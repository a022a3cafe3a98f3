"""What is fuzzed: every parser of what arrives from elsewhere, and what must hold of it.

    @fuzzed("wire header", begin_from=[header.encode()])
    def wire_header(data: bytes) -> None:
        ...parse, and raise for anything but the refusals that the parser promises

A file in `tests/fuzz/parsers` registers its targets by being there. `python -m tests.fuzz` runs
them for as long as one likes, and `test_fuzz.py` a few hundred examples of each in `make test`.
An input that was found goes into `begin_from`: it is tried first, ever after.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

Check = Callable[[bytes], None]


@dataclass(frozen=True)
class Target:
    """One parser: raises from `check` only if a promise does not hold for that input."""

    name: str
    check: Check
    begin_from: tuple[bytes, ...]
    """Inputs that are tried as they are, and bent."""
    inputs: st.SearchStrategy[bytes]
    drawn: bool
    """Whether inputs are drawn by a grammar of its own, and not bent out of `begin_from` alone."""


_TARGETS: dict[str, Target] = {}


def fuzzed(
    name: str, *, begin_from: Sequence[bytes], inputs: st.SearchStrategy[bytes] | None = None
) -> Callable[[Check], Check]:
    """Register a check; without `inputs` it gets random bytes, and `begin_from` bent."""

    def register(check: Check) -> Check:
        assert name not in _TARGETS, f"two targets are called {name}"
        bending = bent(begin_from) if inputs is None else inputs
        _TARGETS[name] = Target(name, check, tuple(begin_from), bending, inputs is not None)
        return check

    return register


def targets() -> dict[str, Target]:
    """All of them by name, from every file in `tests/fuzz/parsers`."""
    import tests.fuzz.parsers as folder

    for module in sorted(pkgutil.iter_modules(folder.__path__), key=lambda each: each.name):
        importlib.import_module(f"{folder.__name__}.{module.name}")
    return dict(_TARGETS)


def bent(begin_from: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Random bytes, or one of these with pieces of it overwritten, cut out, put in or doubled."""
    place, piece = st.integers(0, 4096), st.binary(max_size=8) | st.sampled_from(_ODD)
    edit = st.tuples(st.sampled_from(_EDITS), place, st.integers(0, 16), piece)
    edits = st.lists(edit, max_size=6)
    return st.binary(max_size=256) | st.builds(_edited, st.sampled_from(list(begin_from)), edits)


Edit = Callable[[bytes, int, int, bytes], bytes]


def _overwrite(data: bytes, at: int, size: int, piece: bytes) -> bytes:
    return data[:at] + piece + data[at + len(piece) :]


def _cut(data: bytes, at: int, size: int, piece: bytes) -> bytes:
    return data[:at] + data[at + size :]


def _put_in(data: bytes, at: int, size: int, piece: bytes) -> bytes:
    return data[:at] + piece + data[at:]


def _double(data: bytes, at: int, size: int, piece: bytes) -> bytes:
    return data[: at + size] + data[at:]


def _end(data: bytes, at: int, size: int, piece: bytes) -> bytes:
    return data[:at]


_EDITS: tuple[Edit, ...] = (_overwrite, _cut, _put_in, _double, _end)
_ODD = (  # numbers at the edge of their types, and what text files choke on
    b"\x00" * 8, b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\x00" * 7 + b"\x80", b"\xff" * 4,
    b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xef\xbb\xbf", b"\r\n", b"\n", b"'", b'"', b"\\",
    b"\xc3", b"\x00", b"-", b"nan", b"inf", b"1e999", b"{}", b"[]", b"true", b"null",
)  # fmt: skip


def _edited(data: bytes, edits: Sequence[tuple[Edit, int, int, bytes]]) -> bytes:
    for edit, place, size, piece in edits:
        data = edit(data, place % (len(data) + 1), size, piece)
    return data
