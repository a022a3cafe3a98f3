"""Label-flip: learn from labels turned upside down, and report the result faithfully.

    label ← classes − 1 − label

The lie is in the data: `Attack.labels` turns the labels before training, and the
vector sent is then the attacker's own, as computed. The attacker knows its own data.
As in the experiments of Karimireddy, He and Jaggi, ICLR 2022.
"""

from typing import Any

from garfield.attacks.attack import attack
from garfield.attacks.view import View
from garfield.core.errors import InputError
from garfield.core.types import Floats


def flipped(labels: Any, classes: int) -> Any:
    """Labels 0..classes−1 in reverse order; of an array or a tensor of integers."""
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise InputError(
            f"Labels run from {int(labels.min())} to {int(labels.max())}, "
            f"not within 0..{classes - 1} (classes - 1)."
        )
    return classes - 1 - labels


@attack("label-flip", knows="own", relabel=flipped)
def label_flip(view: View) -> Floats:
    return view.own
