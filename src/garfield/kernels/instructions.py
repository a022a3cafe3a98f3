"""The instruction set that the compiled kernels use: the widest that the processor has.

GARFIELD_ISA, read once when the kernels are loaded, or `set_isa` chooses a
narrower one, so that a wider machine can test and measure it. Sums are the same
bits on any number of threads, but not on two instruction sets.
"""

from __future__ import annotations

import os

from garfield.core.errors import ConfigError
from garfield.kernels import _native

VARIABLE = "GARFIELD_ISA"


def isas() -> tuple[str, ...]:
    """The instruction sets that this processor has and the kernels know, widest first."""
    return _native.isas()


def isa() -> str:
    """The instruction set in use."""
    return _native.isa()


def set_isa(name: str | None) -> None:
    """Use this instruction set; None for GARFIELD_ISA's or, without it, the widest.

    Not while another thread aggregates: it would compute some columns one way, some the other.
    """
    chosen = name or os.environ.get(VARIABLE) or isas()[0]
    if chosen not in isas():
        what = "The instruction set" if name else VARIABLE
        raise ConfigError(
            f"{what} is {chosen}, but this processor has {', '.join(isas())}. "
            f"Choose one of them{'' if name else f', or unset {VARIABLE} for the widest'}."
        )
    _native.use_isa(chosen)


set_isa(None)
