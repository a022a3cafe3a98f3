"""Drop: keep back the reply, or a share of it. The attacker knows its own vector.

With share = 1 nothing is sent at all, as by a node that crashed. Below 1,
round(share · d) coordinates, drawn anew each time, are sent as zeros: what a
receiver sees that fills lost packets with zeros. One of the thesis's attacks.
"""

from garfield.attacks.attack import attack
from garfield.attacks.view import View
from garfield.core.errors import ConfigError
from garfield.core.types import Floats


def _share_of_one(share: float) -> None:
    if not 0 <= share <= 1:
        raise ConfigError(f"drop.share must be within 0..1, got {share}.")


@attack("drop", knows="own", limits=_share_of_one)
def drop(view: View, *, share: float = 1.0) -> Floats | None:
    if share == 1:
        return None
    lost = view.rng.choice(view.d, size=round(share * view.d), replace=False, shuffle=False)
    lie = view.own.copy()
    lie[lost] = 0
    return lie
