"""Attacks: what a Byzantine node sends instead of its vector, one lie per file.

Every attack here is called with a `View` of the round, is an entry of `ATTACKS` by
name, and is found by `parse` with its parameters: ``parse("reverse(factor=-10)")``.
"""

from garfield.attacks.attack import ATTACKS, Attack, attack, parse
from garfield.attacks.constants import constant, huge, inf, nan, zero
from garfield.attacks.drop import drop
from garfield.attacks.fall_of_empires import fall_of_empires, optimal_fall_of_empires
from garfield.attacks.label_flip import label_flip
from garfield.attacks.little_is_enough import little_is_enough, optimal_little_is_enough
from garfield.attacks.mimic import mimic
from garfield.attacks.min_max import min_max, min_sum
from garfield.attacks.noise import gaussian, random
from garfield.attacks.one_coordinate import one_coordinate
from garfield.attacks.pull_apart import pull_apart
from garfield.attacks.reversal import reverse, sign_flip
from garfield.attacks.takeover import takeover
from garfield.attacks.view import View

__all__ = [
    "ATTACKS", "Attack", "View", "attack", "constant", "drop", "fall_of_empires", "gaussian",
    "huge", "inf", "label_flip", "little_is_enough", "mimic", "min_max", "min_sum", "nan",
    "one_coordinate", "optimal_fall_of_empires", "optimal_little_is_enough", "parse", "pull_apart",
    "random", "reverse", "sign_flip", "takeover", "zero",
]  # fmt: skip
