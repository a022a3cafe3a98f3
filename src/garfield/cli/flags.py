"""Flags of a command from the fields of a settings class, read from its source.

The source, not the class: its module imports numpy, for which `garfield --help`
need not wait; and only there stand the docstrings under the fields.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

import garfield

_OPTIONAL: dict[str, Any] = {
    "str": str | None, "int": int | None, "float": float | None, "bool": bool | None,
}  # fmt: skip

_NO = "no_"


class Field(NamedTuple):
    """One setting, as its class declares it."""

    name: str
    kind: str
    """str, int, float or bool."""
    default: Any
    about: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """For typer; None means that the flag was not given."""
        unset = self.default is None or self.default is False
        default = "" if unset else f" ({self.default})"
        option = typer.Option(self.flag, help=f"{self.about}{default}", show_default=False)
        made = [_parameter(self.name, self.kind, option)]
        if self.kind == "bool":  # hidden: two columns of flags leave no room for help
            no = typer.Option(f"--no-{self.flag[2:]}", hidden=True)
            made.append(_parameter(f"{_NO}{self.name}", "bool", no))
        return made


def _parameter(name: str, kind: str, option: Any) -> inspect.Parameter:
    annotation: Any = Annotated[_OPTIONAL[kind], option]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=annotation)


def fields() -> tuple[Field, ...]:
    """All settings of a run: those of every application, then those of some."""
    return _fields("launch/settings.py", "Settings") + _fields("apps/options.py", "Options")


@cache
def _fields(file: str, owner: str) -> tuple[Field, ...]:
    """The fields of a dataclass, in order, each with the docstring below it."""
    tree = ast.parse((Path(garfield.__file__).parent / file).read_text(encoding="utf-8"))
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == owner)
    found = []
    for node, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert node.value is not None  # every setting has a default
            kind = ast.unparse(node.annotation).partition(" ")[0]
            default = _value(node.value, constants)
            found.append(Field(node.target.id, kind, default, _text(below)))
    return tuple(found)


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command, its ``**flags`` replaced by one option for every setting."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    own = [p.replace(kind=p.KEYWORD_ONLY) for p in own]
    options = [*(option for field in fields() for option in field.parameters), *own]

    def called(**given: Any) -> None:
        refused = [name for name in given if name.startswith(_NO) and given[name]]
        kept = {name: value for name, value in given.items() if not name.startswith(_NO)}
        command(**kept | {name.removeprefix(_NO): False for name in refused})

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
    called.__annotations__ = {option.name: option.annotation for option in options}
    return called


def _value(node: ast.expr, constants: dict[str, Any]) -> Any:
    return constants[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)


def _text(node: ast.stmt | None) -> str:
    """The docstring, its lines joined."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""
