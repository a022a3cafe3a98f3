"""Little is enough: stay inside the honest spread, and let all f stand on one side of it.

    lie = μ + sign · z σ,   z = Φ⁻¹((n − f − s) / (n − f)),   s = ⌊n/2⌋ + 1 − f

with μ, σ the honest rows' mean and deviation per coordinate. s honest rows are
what the liars lack for a majority; z is so small that s of them are expected
even farther out, so the liars pass for the middle. With one liar (or two, if n is
even) the formula gives z <= 0, with a majority of them infinity: the quantile is
then kept half a row, 1/(2(n − f)), off the middle and off the end. Setting z
overrides all that.

The optimal form searches z against the known rule instead.
The attacker knows all honest rows. Baruch, Baruch and Goldberg, NeurIPS 2019.
"""

from numbers import Real
from statistics import NormalDist

from garfield.attacks.attack import attack
from garfield.attacks.honest_rows import learnable_rows, mean_and_std
from garfield.attacks.strength import range_makes_sense, strongest
from garfield.attacks.view import View
from garfield.core.errors import ConfigError
from garfield.core.types import Floats


def z_max(n: int, f: int) -> float:
    """How many deviations f liars among n may stray and still be followed."""
    honest = n - f
    missing = n // 2 + 1 - f
    half = 1 / (2 * honest)
    share = max((honest - missing) / honest, 0.5 + half)
    return NormalDist().inv_cdf(min(share, 1 - half))


def _one_side(sign: int, z: float | None = None) -> None:
    if sign not in (-1, 1):
        raise ConfigError(f"little-is-enough.sign must be 1 or -1, got {sign}.")
    if z is not None and not (isinstance(z, Real) and 0 <= z < float("inf")):
        raise ConfigError(f"little-is-enough.z must be a number of at least 0, got {z!r}.")


def _one_side_and_range(sign: int, least: float, most: float, trials: int) -> None:
    _one_side(sign)
    range_makes_sense(least, most, trials)


@attack("little-is-enough", knows="all", limits=_one_side, unanimous=True)
def little_is_enough(view: View, *, z: float | None = None, sign: int = 1) -> Floats:
    mean, std = mean_and_std(learnable_rows(view))
    return mean + sign * (z_max(view.n, view.f) if z is None else z) * std


@attack(
    "optimal-little-is-enough",
    knows="all",
    knows_rule=True,
    limits=_one_side_and_range,
    unanimous=True,
)
def optimal_little_is_enough(
    view: View, *, sign: int = 1, least: float = 0.05, most: float = 20.0, trials: int = 60
) -> Floats:
    mean, std = mean_and_std(learnable_rows(view))
    return strongest(view, mean, lambda z: mean + sign * z * std, least, most, trials)
