"""Names to things: how rules, pre-aggregations and attacks are found.

An extension registers itself with one decorator; from then on it is known by
name to every command, config file and test contract.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Generic, TypeVar, get_type_hints

from garfield.core.annotations import check_value
from garfield.core.errors import ConfigError, UnknownName

Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry], Generic[Entry]):
    """A read-only mapping for users; ``add`` is for decorators."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # with its article: "a rule"
        self._entries: dict[str, Entry] = {}

    def add(self, name: str, entry: Entry) -> Entry:
        if name in self._entries:
            raise ConfigError(f"{name} is already {self.kind}. Register yours under another name.")
        self._entries[name] = entry
        return entry

    def remove(self, name: str) -> None:
        """Forget a name: for tests and notebooks that register a thing twice."""
        self._entries.pop(name, None)

    def __getitem__(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownName(self.kind, name, self._entries) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<registry of {len(self)}: {', '.join(self)}>"


class Parameters:
    """The keyword-only parameters of an extension's function, and their defaults."""

    def __init__(self, owner: str, function: Callable[..., Any], given: frozenset[str]) -> None:
        self.owner = owner
        self._function = function
        self.defaults = {
            p.name: p.default
            for p in inspect.signature(function).parameters.values()
            if p.kind is p.KEYWORD_ONLY and p.name not in given
        }

    def check(self, params: Mapping[str, Any]) -> None:
        """Refuse a misspelt parameter, and a value that does not fit its annotation."""
        for name, value in params.items():
            if name not in self.defaults:
                raise UnknownName(f"a parameter of {self.owner}", name, self.defaults)
            check_value(f"{self.owner}.{name}", value, self._hint(name))

    def _hint(self, name: str) -> Any:
        """The annotation; without one, a default that is a number says that it is one."""
        default, hints = self.defaults[name], _hints(self._function)
        if name in hints:
            return hints[name]
        return type(default) if type(default) in (int, float) else Any


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError):  # a user's names that exist for a type checker alone
        return {}
