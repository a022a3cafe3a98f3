"""Reversal: send the honest vector backwards. The attacker knows its own vector.

    reverse      factor · own, −100 unless said otherwise: far too large to be missed
    sign-flip    −own: as long as an honest vector, and pulling uphill

Reverse: Chen et al., ICML 2018 (DRACO), and the thesis; sign-flip: Li et al., AAAI 2019 (RSA).
"""

from garfield.attacks.attack import attack
from garfield.attacks.view import View
from garfield.core.types import Floats


@attack("reverse", knows="own")
def reverse(view: View, *, factor: float = -100.0) -> Floats:
    return factor * view.own


@attack("sign-flip", knows="own")
def sign_flip(view: View) -> Floats:
    return -view.own
