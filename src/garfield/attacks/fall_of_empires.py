"""Fall of empires: send the honest mean backwards, but shortened. (Inner-product manipulation.)

    lie = −ε μ,   μ the honest rows' mean

A small ε keeps the lie so near to the honest rows that a rule which judges by
distance takes it in, and what comes out points away from the true gradient. The
default of 0.1 does that to Krum while the rows are noisy; only a large ε turns
an average, one above (n − f) / f. The optimal form searches ε against the known rule.

The attacker knows all honest rows. Xie, Koyejo and Gupta, UAI 2019.
"""

from garfield.attacks.attack import attack
from garfield.attacks.honest_rows import learnable_rows, mean_of
from garfield.attacks.strength import range_makes_sense, strongest
from garfield.attacks.view import View
from garfield.core.errors import ConfigError
from garfield.core.types import Floats


def _backwards(epsilon: float) -> None:
    if epsilon <= 0:
        raise ConfigError(f"fall-of-empires.epsilon must be positive, got {epsilon}.")


@attack(
    "fall-of-empires",
    aliases=["inner-product-manipulation"],
    knows="all",
    limits=_backwards,
    unanimous=True,
)
def fall_of_empires(view: View, *, epsilon: float = 0.1) -> Floats:
    return -epsilon * mean_of(learnable_rows(view))


@attack(
    "optimal-fall-of-empires",
    aliases=["optimal-inner-product-manipulation"],
    knows="all",
    knows_rule=True,
    limits=range_makes_sense,
    unanimous=True,
)
def optimal_fall_of_empires(
    view: View, *, least: float = 0.05, most: float = 20.0, trials: int = 60
) -> Floats:
    mean = mean_of(learnable_rows(view))
    return strongest(view, mean, lambda epsilon: -epsilon * mean, least, most, trials)
