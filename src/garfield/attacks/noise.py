"""Noise: normally distributed numbers, alone or on top of the truth.

    random      N(0, scale²) in every coordinate; knows nothing
    gaussian    own + scale · σ · N(0, 1), with σ the deviation of own's coordinates; knows own

`random` is the thesis's "random values", for which it gives no distribution. The
scale of 10 taken here lets one such liar among eleven workers ruin an average, as
in Figure 3.5; at 1 the noise cancels over the steps of a run with momentum.
`gaussian` keeps to the size of the honest vector: at a scale of 1 it is as much
noise as signal. Every attacker draws noise of its own.
"""

import numpy as np

from garfield.attacks.attack import attack
from garfield.attacks.view import View
from garfield.core.errors import ConfigError
from garfield.core.types import Floats


def _scale_above_zero(scale: float) -> None:
    if scale <= 0:
        raise ConfigError(f"The scale of noise must be positive, got {scale}.")


@attack("random", knows="nothing", limits=_scale_above_zero)
def random(view: View, *, scale: float = 10.0) -> Floats:
    return scale * view.rng.standard_normal(view.d)


@attack("gaussian", knows="own", limits=_scale_above_zero)
def gaussian(view: View, *, scale: float = 1.0) -> Floats:
    sigma = float(view.own.std(dtype=np.float64))
    return view.own + scale * sigma * view.rng.standard_normal(view.d)
