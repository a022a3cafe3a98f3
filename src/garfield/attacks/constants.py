"""Constants: the same number in every coordinate. The attacker knows nothing.

    zero        0, as if it had nothing to learn
    constant    `value`, −100 unless said otherwise
    inf, nan    what a diverged or broken node sends
    huge        ±0.9 times the largest finite number (3.06e38 in float32), + and − in turn:
                finite one by one, infinite once two of them are added

Constant: Chen et al., ICML 2018 (DRACO). The last three are faults to survive rather
than attacks from a paper: one NaN turns a careless rule's result into NaN.
"""

import numpy as np

from garfield.attacks.attack import attack
from garfield.attacks.view import View
from garfield.core.types import Floats


@attack("zero", knows="nothing", unanimous=True)
def zero(view: View) -> Floats:
    return np.zeros(view.d, view.dtype)


@attack("constant", knows="nothing", unanimous=True)
def constant(view: View, *, value: float = -100.0) -> Floats:
    return np.full(view.d, value)


@attack("inf", knows="nothing", unanimous=True, finite=False)
def inf(view: View) -> Floats:
    return np.full(view.d, np.inf, view.dtype)


@attack("nan", knows="nothing", unanimous=True, finite=False)
def nan(view: View) -> Floats:
    return np.full(view.d, np.nan, view.dtype)


@attack("huge", knows="nothing", unanimous=True)
def huge(view: View) -> Floats:
    lie = np.full(view.d, 0.9 * np.finfo(view.dtype).max, view.dtype)
    lie[1::2] *= -1
    return lie
