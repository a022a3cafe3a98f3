"""Settings: a documented, frozen dataclass becomes flags, TOML keys, and checks with remedies.

    @dataclass(frozen=True)
    class Rounds:
        timeout_s: float = 10.0
        '''How long a synchronous round waits for the slowest.'''
        retries: Annotated[int, Within(0)] = 3
        '''A number may have bounds (`core/bounds.py`); it is finite in any case.'''

A field is a setting if it is a str, int, float, bool, one of these or None, or a tuple of
texts; a field that is itself such a dataclass is a group of settings. Names are flat: each is
unique over all groups, so that a flag (`--timeout-s`) or a key (`timeout-s = 5`) needs no
prefix. A TOML file may also hold a group as a table (`[rounds]`).

Text under a field is its documentation, read by docstring_parser. Flags are made of the same
`Setting` by `garfield.cli.flags`, with cyclopts. It was chosen by measurement, on top of an
interpreter's 17 ms: cyclopts 5.4 imports in 95 ms, tyro 1.0 in 100, typer 0.29 in 70,
pydantic-settings 2.16 in 260. Of the three that read documentation under fields, cyclopts
alone loads commands lazily and spells the flags of groups without a prefix, in panels; typer
needs a signature made by hand for every setting.
"""

from __future__ import annotations

import math
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from garfield.core.bounds import Within, check_number, is_finite, shown
from garfield.core.errors import ConfigError, UnknownName
from garfield.core.files import as_json

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Owner = TypeVar("Owner")

NOT_A_SETTING = types.MappingProxyType({"setting": False})
"""Metadata of a field that no flag and no file may set."""

_WORDS: dict[Any, str] = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false",
    tuple: "a text or a list of names",
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One setting, as its dataclass declares it."""

    name: str
    group: str
    """The group that holds it; empty for those of the outermost dataclass."""
    kind: type
    """str, int, float, bool, or tuple for a tuple of texts."""
    optional: bool
    """None is a value too."""
    default: Any
    owner: type
    """The dataclass that declares it."""
    bounds: Within | None = None
    """Where its number must lie, if its annotation says so: `Annotated[int, Within(1)]`."""

    def check(self, value: Any) -> None:
        """Raise ConfigError for a number that is not finite or out of bounds."""
        if self.kind in (int, float) and value is not None:
            check_number(self.name, value, self.bounds)

    @property
    def about(self) -> str:
        """The documentation under the field, on one line."""
        return _documentation(self.owner).get(self.name, "")

    @property
    def flag(self) -> str:
        """How it is spelt on a command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def full_name(self) -> str:
        """The name with the group that holds it, as messages about tables spell it."""
        return f"{self.group}.{self.name}" if self.group else self.name

    def typed(self, value: Any) -> Any:
        """The value as its field wants it; an int will do for a float, nothing else for anything.

        Names may be a list, or a text with commas.
        """
        if value is None and (self.optional or self.kind is tuple):
            return None if self.optional else ()
        if self.kind is tuple and isinstance(value, (str, list, tuple)):
            given = value.split(",") if isinstance(value, str) else value
            if all(isinstance(name, str) for name in given):
                return tuple(name.strip() for name in given if name.strip())
        if self.kind is float and type(value) is int and is_finite(value):
            return float(value)
        if type(value) is not self.kind:
            raise ConfigError(f"{self.name} must be {_WORDS[self.kind]}, got {shown(value)}.")
        return value

    def parsed(self, text: str) -> Any:
        """The value that a text of a command line stands for."""
        if self.kind not in (int, float):
            return self.typed(text)
        try:
            return self.kind(text)
        except ValueError:
            return self.typed(text)  # refuses it


def settings_of(owner: type) -> tuple[Setting, ...]:
    """All settings of a dataclass, those of its groups included, in order."""
    return _settings_of(owner, "")


@cache
def _settings_of(owner: type, group: str) -> tuple[Setting, ...]:
    if not is_dataclass(owner):
        raise ConfigError(f"{owner.__name__} must be a dataclass to hold settings.")
    hints = typing.get_type_hints(owner, include_extras=True)
    found: list[Setting] = []
    for field in fields(owner):
        if field.metadata.get("setting", True):
            hint = hints[field.name]
            if is_dataclass(hint):
                found += _settings_of(typing.cast(type, hint), field.name)
            else:
                hint, bounds = _bounded(hint)
                kind, optional = _kind(owner, field.name, hint)
                default = _default(owner, field)
                found.append(Setting(field.name, group, kind, optional, default, owner, bounds))
    _refuse_repeated(owner, found)
    return tuple(found)


def values_of(settings: object) -> dict[str, Any]:
    """The value of each setting by its flat name."""
    return {
        setting.name: getattr(_holder(settings, setting), setting.name)
        for setting in settings_of(type(settings))
    }


def made(owner: type[Owner], values: Mapping[str, Any]) -> Owner:
    """A dataclass of settings from flat values; names and types are checked."""
    known = named(settings_of(owner))
    grouped: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        setting = known_setting(name, known)
        grouped.setdefault(setting.group, {})[name] = setting.typed(value)
    own = grouped.pop("", {})
    hints = typing.get_type_hints(owner)
    return owner(**own, **{group: hints[group](**given) for group, given in grouped.items()})


def check_numbers(settings: object) -> None:
    """Raise ConfigError for the first number that is not finite, or out of its bounds."""
    values = values_of(settings)
    for setting in settings_of(type(settings)):
        setting.check(values[setting.name])


def known_setting(name: str, known: Mapping[str, Setting]) -> Setting:
    """The setting of that name; else UnknownName, with the nearest."""
    if name not in known:
        raise UnknownName("a setting", name, known)
    return known[name]


def named(settings: Iterable[Setting]) -> dict[str, Setting]:
    """Settings by their names."""
    return {setting.name: setting for setting in settings}


def flattened(content: Mapping[str, Any], settings: Iterable[Setting]) -> dict[str, Any]:
    """What a TOML file says, by flat names: tables of groups are unfolded, - becomes _."""
    groups: dict[str, dict[str, Setting]] = {}
    for setting in settings:
        groups.setdefault(setting.group, {})[setting.name] = setting
    found: dict[str, Any] = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if not isinstance(value, Mapping):
            _add(found, name, value)
            continue
        group = key if key in groups else name
        if group not in groups:
            raise UnknownName("a group of settings", key, (each for each in groups if each))
        for inner, given in value.items():
            inner = inner.replace("-", "_")
            if inner not in groups[group]:
                all_names = (setting.full_name for setting in groups[group].values())
                raise UnknownName("a setting", f"{group}.{inner}", all_names)
            _add(found, inner, given)
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, its keys spelt with _; ConfigError if it cannot be read."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise ConfigError(f"{path} cannot be read: {problem}.") from None
    return {key.replace("-", "_"): value for key, value in content.items()}


def as_toml(values: Mapping[str, Any]) -> str:
    """Flat values as a TOML file; what is not set stands in a comment."""
    lines = []
    for name, value in values.items():
        key = name.replace("_", "-")
        if value is None:
            lines.append(f"# {key} is not set")
        elif isinstance(value, float) and not math.isfinite(value):
            lines.append(f"{key} = {value}")
        else:  # a JSON text, number, list or truth value is a TOML one too
            lines.append(f"{key} = {as_json(value)}")
    return "\n".join(lines) + "\n"


def _holder(settings: Any, setting: Setting) -> Any:
    return getattr(settings, setting.group) if setting.group else settings


@cache
def _documentation(owner: type) -> dict[str, str]:
    """The text under each field, its lines joined; read from the source, so only when asked."""
    from docstring_parser import parse_from_object

    return {
        each.arg_name: " ".join((each.description or "").split())
        for base in reversed(owner.__mro__)
        if is_dataclass(base)
        for each in parse_from_object(base).params
    }


def _bounded(hint: Any) -> tuple[Any, Within | None]:
    """A hint without its notes, and the bounds among them."""
    if typing.get_origin(hint) is not Annotated:
        return hint, None
    inner, *notes = typing.get_args(hint)
    return inner, next((note for note in notes if isinstance(note, Within)), None)


def _kind(owner: type, name: str, hint: Any) -> tuple[type, bool]:
    """The type of a setting, and whether it may be None."""
    optional = False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [each for each in typing.get_args(hint) if each is not types.NoneType]
        optional = len(kinds) < len(typing.get_args(hint))
        hint = kinds[0] if len(kinds) == 1 else hint
    if hint == tuple[str, ...]:
        return tuple, optional
    if hint not in (str, int, float, bool):
        raise ConfigError(
            f"{owner.__name__}.{name} cannot be a setting: it is {hint}. A setting is a str, int, "
            "float or bool, one of these or None, or a tuple[str, ...]."
        )
    return hint, optional


def _default(owner: type, field: Field[Any]) -> Any:
    if field.default is MISSING:
        raise ConfigError(f"{owner.__name__}.{field.name} needs a default to be a setting.")
    return field.default


def _refuse_repeated(owner: type, settings: Iterable[Setting]) -> None:
    holders: dict[str, str] = {}
    for setting in settings:
        if setting.name in holders:
            raise ConfigError(
                f"{owner.__name__} has two settings named {setting.name}, in "
                f"{holders[setting.name] or 'itself'} and {setting.group or 'itself'}. Rename one."
            )
        holders[setting.name] = setting.group


def _add(found: dict[str, Any], name: str, value: Any) -> None:
    if name in found:
        raise ConfigError(f"{name} is given twice: by itself, and in a table. Give it once.")
    found[name] = value
