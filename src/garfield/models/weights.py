"""The weights a model starts from.

He et al. (ICCV 2015) for every layer that has them: N(0, 2 / inputs), so that signals
keep their size through 19 or 200 layers of ReLU. The last layer starts ten times
smaller still: the first loss is close to ln(classes), whatever the model.
"""

import torch
from torch import nn


def started(model: nn.Sequential) -> nn.Sequential:
    """The same model, its weights drawn from torch's random state."""
    layers = [layer for layer in model.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    with torch.no_grad():
        layers[-1].weight.mul_(0.1)
    return model
