"""The weights a model starts from, and the layout in which it computes.

He et al. (ICCV 2015) for every layer that has them: N(0, 2 / inputs), so that signals
keep their size through 19 or 200 layers of ReLU. The last layer starts ten times
smaller still: the first loss is close to ln(classes), whatever the model.

On a CPU, convolutions and pools work on images with their channels last. Gradients of
mnist_cnn took 0.6 of the time then, inception 0.6, resnet50 0.75, cifarnet 0.85, vgg11 0.9.
"""

from typing import Any

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
    if any(isinstance(layer, nn.Conv2d) for layer in layers):
        model.register_forward_pre_hook(_channels_last)
    return model


def _channels_last(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    (images,) = inputs
    return (images.to(memory_format=torch.channels_last),) if images.is_cpu else inputs
