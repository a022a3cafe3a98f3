"""Everything that a file registers, held to the contracts: what fails, where, and with what input.

The line is that of the user's code which raised an error, or where the thing is defined; the input
is what the check had in hand. Rules and pre-aggregations meet the attacks of the library, not those
of the file, which may have mistakes of their own.
"""

from __future__ import annotations

import inspect
import numbers
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from garfield.attacks import ATTACKS
from garfield.core.blame import place_of
from garfield.core.errors import ConfigError
from garfield.core.registry import Registry
from garfield.gars import GARS, Rule
from garfield.models import MODELS
from garfield.preaggregation import STAGES
from garfield.runs.user_files import load
from garfield.testing import promises
from garfield.testing.attacks import ATTACK_CHECKS
from garfield.testing.models import MODEL_CHECKS, Tried, on_images
from garfield.testing.promises import Broken, Check, try_out
from garfield.testing.rules import RULE_CHECKS, SEED
from garfield.testing.stages import STAGE_CHECKS

_HERE = Path(__file__).parent
_NO_CHECKS = (__file__, promises.__file__)
_SHOWN = 6  # values of an input
_UNTRIED = (
    "not tried, as it states no image=(channels, height, width). To try it on your data: "
    "garfield check FILE.py:NAME --data FILE.py:load"
)


@dataclass(frozen=True)
class Finding:
    """A promise that something breaks."""

    promise: str
    why: str
    file: str
    line: int
    given: str
    """What it was tried with, as "rows (15, 60) float32, f=3"; empty if nothing is known."""


@dataclass(frozen=True)
class Examined:
    """One thing that a file registers, and what was found."""

    kind: str
    name: str
    file: str
    line: int
    promises: int
    """How many were tried."""
    broken: tuple[Finding, ...]
    untried: str = ""
    """Why nothing was tried, if nothing was."""


@dataclass(frozen=True)
class _Subject:
    kind: str
    name: str
    entry: Any
    """What is registered."""
    checked: Any
    """The same with its randomness fixed."""
    code: Any
    """The function or class that the user wrote."""
    checks: tuple[Check[Any], ...]


def check_file(path: Path, step: Callable[[str], None] = lambda _: None) -> list[Examined]:
    """Import a file, and hold all that it registers to the contracts.

    `step` is called with the name of each thing before it is tried. ConfigError if the file cannot
    be imported, or registers nothing that there is a contract for.
    """
    before = [entry for registry in _REGISTRIES for entry in registry.values()]
    load(path)
    theirs = []
    for subject in _subjects():
        file, line = _definition(subject.code)
        if file == str(path.absolute()) or not any(subject.entry is entry for entry in before):
            theirs.append((subject, file, line))
    found = []
    with _without_attacks([subject.entry for subject, *_ in theirs]):
        for subject, file, line in theirs:
            step(f"{subject.kind} {subject.name}")
            found.append(_examined(subject, file, line))
    if not found:
        raise ConfigError(
            f"{path} registers no rule, attack, pre-aggregation or model. Put @gar, @attack or "
            "@stage above a function, or call MODELS.add. A model that is not registered is tried "
            f"by garfield check {path.name}:Net --data DATA."
        )
    return found


_REGISTRIES: tuple[Registry[Any], ...] = (GARS, STAGES, ATTACKS, MODELS)


def _subjects() -> Iterator[_Subject]:
    """All that is registered, each thing once."""
    for name, rule in GARS.items():
        yield _Subject("rule", name, rule, rule.seeded(SEED), rule.function, RULE_CHECKS)
    for name, stage in STAGES.items():
        fixed = stage.seeded(SEED)
        yield _Subject("pre-aggregation", name, stage, fixed, stage.function, STAGE_CHECKS)
    for name, attack in ATTACKS.items():
        if name == attack.name:  # and no other name for it
            yield _Subject("attack", name, attack, attack, attack.function, ATTACK_CHECKS)
    for name, model in MODELS.items():
        tried = None if model.image is None else on_images(model)
        checks = () if tried is None else MODEL_CHECKS
        yield _Subject("model", name, model, tried, model.build, checks)


@contextmanager
def _without_attacks(entries: list[Any]) -> Iterator[None]:
    """Leave out of the registry whatever attacks there are among these."""
    theirs = {n: a for n, a in ATTACKS.items() if any(a is entry for entry in entries)}
    for name in theirs:
        ATTACKS.remove(name)
    try:
        yield
    finally:
        for name, attack in theirs.items():
            ATTACKS.add(name, attack)


def check_own_model(name: str, code: Any, tried: Tried) -> Examined:
    """Hold a model that nobody has registered to the contract; `code` is its class or function."""
    subject = _Subject("model", name, tried.model, tried, code, MODEL_CHECKS)
    return _examined(subject, *_definition(code))


def _examined(subject: _Subject, file: str, line: int) -> Examined:
    if not subject.checks:
        return Examined(subject.kind, subject.name, file, line, 0, (), _UNTRIED)
    broken = []
    for check in subject.checks:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of what overflows: the check says what comes of it
            result = try_out(check, subject.checked)
        if result is not None:
            broken.append(_finding(result, file, line))
    return Examined(subject.kind, subject.name, file, line, len(subject.checks), tuple(broken))


def _finding(broken: Broken, file: str, line: int) -> Finding:
    file, line = place_of(broken.error) or (file, line)
    return Finding(broken.promise, broken.why, file, line, _given(broken.error.__traceback__))


def _definition(code: Any) -> tuple[str, int]:
    """File and line of a function or class; of anything else none."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(code)) or ""
        return str(Path(file).absolute()), inspect.getsourcelines(inspect.unwrap(code))[1]
    except (TypeError, OSError):
        return "", 0


def _given(trace: TracebackType | None) -> str:
    """What the check had in hand when it failed: its numbers, and the shapes of its arrays."""
    values: dict[str, str] = {}
    while trace is not None:
        code, values_here = trace.tb_frame.f_code, trace.tb_frame.f_locals
        if Path(code.co_filename).parent == _HERE and code.co_filename not in _NO_CHECKS:
            values |= {name: _shown(value) for name, value in values_here.items()}
        elif code is Rule.__call__.__code__:
            values["f"] = _shown(values_here["f"])
        trace = trace.tb_next
    told = [f"{name}{text}" for name, text in values.items() if text]
    return ", ".join(told[:_SHOWN])


def _shown(value: Any) -> str:
    """An input in a few words, with what stands between its name and it; empty for others."""
    if isinstance(value, np.ndarray):
        return f" {value.shape} {value.dtype}"
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return f" {len(value)} ×{_shown(value[0])}"
    if isinstance(value, bool | np.bool_):
        return ""  # what was found, and not what was given
    if isinstance(value, numbers.Real):
        return f"={value:g}" if isinstance(value, float) else f"={value}"
    if isinstance(value, type) and issubclass(value, np.generic):
        return f"={value.__name__}"
    is_name = isinstance(value, str) and " " not in value  # others are what is to be said
    return f"={value!r}" if is_name else ""
