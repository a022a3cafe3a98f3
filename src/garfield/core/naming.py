"""Reads names and their parameters from text: "bucketing(s=3)", "reverse(factor=-10)"."""

from __future__ import annotations

import ast
from typing import Any

from garfield.core.errors import ConfigError


def split_at(separator: str, text: str) -> list[str]:
    """Cut at every separator outside brackets: commas and 1e+3 may stand inside."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def parse_call(text: str, *, example: str) -> tuple[str, dict[str, Any]]:
    """Name and parameters of "name" or "name(key=value, ...)"; values are literals.

    `example` is shown to whoever wrote something else.
    """
    name, bracket, inside = text.strip().partition("(")
    if not bracket:
        return name, {}
    try:
        call = ast.parse(f"f({inside}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("parameters are given as key=value")
        return name.strip(), {str(key.arg): ast.literal_eval(key.value) for key in call.keywords}
    except (SyntaxError, ValueError) as problem:
        raise ConfigError(
            f"{text} is not understood ({problem}). Write it like {example}."
        ) from None
