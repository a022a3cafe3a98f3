"""Rules from text: "multi-krum", "nnm+multi-krum", "bucketing(s=3)+trimmed-mean"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from garfield.core.errors import ConfigError, UnknownName
from garfield.core.naming import parse_call, split_at
from garfield.gars.rule import GARS, Rule
from garfield.preaggregation import STAGES, Stage


def parse(text: str) -> Rule:
    """The rule that this text names, with its stages and parameters."""
    *fronts, last = (_call(part) for part in split_at("+", text))
    stages = [_stage(name, params) for name, params in fronts]
    name, params = last
    if name not in GARS and name in STAGES:
        raise ConfigError(f"{text} ends in a pre-aggregation. Put a rule last: {text}+median.")
    rule = GARS[name].bind(**params)
    return rule.after(*stages) if stages else rule


def chain(*parts: str | Stage | Rule) -> Rule:
    """The same by composition: ``chain(nnm, bucketing.bind(s=3), multi_krum)``."""
    *fronts, last = parts
    rule = parse(last) if isinstance(last, str) else last
    if isinstance(rule, Stage):
        raise ConfigError(f"A chain ends in a rule, and {rule.name} is a pre-aggregation.")
    return rule.after(*(_front(part) for part in fronts))


def _front(part: str | Stage | Rule) -> Stage:
    if isinstance(part, Rule):
        raise ConfigError(f"Only the last of a chain may be a rule, and {part.name} is one.")
    return _stage(*_call(part)) if isinstance(part, str) else part


def _stage(name: str, params: Mapping[str, Any]) -> Stage:
    if name not in STAGES and name in GARS:
        raise ConfigError(f"{name} is a rule, not a pre-aggregation. Put it last.")
    if name not in STAGES:
        raise UnknownName("a pre-aggregation", name, STAGES)
    return STAGES[name].bind(**params)


def _call(text: str) -> tuple[str, dict[str, Any]]:
    return parse_call(text, example="bucketing(s=3)")
