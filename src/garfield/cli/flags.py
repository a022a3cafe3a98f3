"""Flags of a command from settings: see `garfield.core.config`."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, make_dataclass
from functools import partial, wraps
from typing import Annotated, Any

from cyclopts import Group, Parameter

from garfield.core.config import Setting


@dataclass(frozen=True)
class Flags:
    """Marks a command's parameter, a dict, that is given as one flag for each of some settings."""

    panels: Callable[[], Mapping[str, Iterable[Setting]]]
    """The settings by the titles of the panels that help shows them in. Asked when the command
    runs: files of the user's may have registered more by then."""


def in_panels(settings: Iterable[Setting], title: Callable[[str], str]) -> dict[str, list[Setting]]:
    """The settings by the title of the panel for their group."""
    panels: dict[str, list[Setting]] = {}
    for setting in settings:
        panels.setdefault(title(setting.group), []).append(setting)
    return panels


def spelt_out(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """The command, with flags for every parameter that is marked; those given reach it."""
    signature = inspect.signature(command)
    hints = typing.get_type_hints(command, include_extras=True)
    marked = {name: mark for name, hint in hints.items() if (mark := _mark(hint)) is not None}
    if not marked:
        return command

    @wraps(command)
    def called(*positional: Any, **arguments: Any) -> int | None:
        for name in marked:
            flags = vars(arguments[name]) if arguments.get(name) is not None else {}
            arguments[name] = {flag: value for flag, value in flags.items() if value is not None}
        return command(*positional, **arguments)

    hints |= {name: _flattened(mark.panels()) for name, mark in marked.items()}
    parameters = [
        parameter.replace(
            annotation=hints[name], default=None if name in marked else parameter.default
        )
        for name, parameter in signature.parameters.items()
    ]
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = hints
    return called


def _mark(hint: Any) -> Flags | None:
    notes = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    return next((note for note in notes if isinstance(note, Flags)), None)


def _flattened(panels: Mapping[str, Iterable[Setting]]) -> Any:
    """A dataclass of flags that need no prefix; None means that a flag was not given."""
    made: dict[str, Any] = {}
    for title, settings in panels.items():
        group = Group.create_ordered(title)
        for setting in settings:
            kind = str if setting.kind is tuple else setting.kind  # names, with commas
            made.setdefault(setting.name, Annotated[kind | None, _parameter(setting, group)])
    flags = make_dataclass("Given", [(name, made[name], field(default=None)) for name in made])
    flags.__module__ = __name__  # cyclopts takes a class of the standard library for one value
    return Annotated[flags, Parameter(name="*")]


def _parameter(setting: Setting, group: Group) -> Parameter:
    unset = setting.default is None or setting.default is False or setting.default == ()
    return Parameter(
        name=setting.flag,
        negative=f"--no-{setting.flag[2:]}" if setting.kind is bool else (),
        converter=None if setting.kind is bool else partial(_parsed, setting),
        help=setting.about,
        show_default=False if unset else str(setting.default),
        group=group,
    )


def _parsed(setting: Setting, kind: type, tokens: Any) -> Any:
    return setting.parsed(tokens[0].value)
