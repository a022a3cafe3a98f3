"""What a rule of a user's may answer: one finite vector, of the kind of its rows.

Our own rules are held to it by tests, and look at their numbers while they compute them. Anybody
else's answer is looked at here, so that a mistake is told with the rule's name where it is made,
and not as a model that has become NaN some steps later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from garfield.core.errors import AnswerNotFinite, InputError
from garfield.gars.choice import Choice
from garfield.kernels import Rows
from garfield.kernels.kinds import dtype_name, framework_of


def is_ours(function: Callable[..., Any]) -> bool:
    """Whether a function is part of this library."""
    return getattr(function, "__module__", "").startswith("garfield.")


def checked_answer(rule: str, choice: Choice, rows: Rows, framework: str) -> Choice:
    """The answer of a rule, whose vector is the caller's to write to.

    InputError, saying what it is, for one that is no vector or is not finite. Rows that are not
    finite are to blame first: they are then named by NonFinite, as by our own kernels.
    """
    vector = choice.vector
    shape = tuple(getattr(vector, "shape", ()))
    if framework_of(vector) != framework or shape != (rows.d,):
        raise InputError(
            f"The rule {rule} returned {_described(vector)}. It must return one vector: a "
            f"{framework} {'tensor' if framework == 'torch' else 'array'} of shape ({rows.d},), or "
            "a Choice of one."
        )
    name = dtype_name(vector)
    if "float" not in name:
        raise InputError(f"The rule {rule} returned numbers of dtype {name}. Return floats.")
    finite = abs(vector) < float("inf")  # NaN compares false
    if not bool(finite.all()):
        rows.require_finite()
        wrong = np.flatnonzero(~np.asarray(finite.cpu() if framework == "torch" else finite))
        raise AnswerNotFinite(
            f"The rule {rule} returned {float(vector[int(wrong[0])]):g} at coordinate {wrong[0]} "
            f"({len(wrong)} of {rows.d} are not finite), and all {rows.n} rows are finite."
        )
    if framework == "numpy" and not (vector.flags.writeable and vector.flags.c_contiguous):
        return replace(choice, vector=vector.copy())  # one of the rows, say
    return choice


def _described(value: Any) -> str:
    kind = type(value)
    package = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    of = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    return f"a {package}{kind.__name__}{of}"
