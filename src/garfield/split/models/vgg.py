"""VGG-11 and VGG-19: 132,863,336 and 143,667,240 parameters at 1000 classes.

Simonyan and Zisserman, ICLR 2015; names as in torchvision. Table 5.2 of the thesis counts 28 and
45 layers: the first without avgpool and flatten, which belong to the last pooling here, the
second with one of them, which is both of them here. Frozen up to layer 25, the rectifier behind
the second dense layer, and up to 36, the last pooling.
"""

from collections.abc import Sequence

from torch import nn

from garfield.split.models.cutting import Layer, layer


def _features(stages: Sequence[int]) -> list[Layer]:
    """Stages of 3×3 convolutions, as many as said, each stage followed by a pooling."""
    modules: list[nn.Module] = []
    inputs = 3
    for stage, count in enumerate(stages):
        width = min(64 * 2**stage, 512)
        for _ in range(count):
            modules += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = width
        modules.append(nn.MaxPool2d(2))  # (width, 112 / 2**stage, 112 / 2**stage)
    return [layer(f"features.{number}", module) for number, module in enumerate(modules)]


def _classifier(classes: int) -> list[Layer]:
    return [
        layer("classifier.0", nn.Linear(512 * 7 * 7, 4096)),
        layer("classifier.1", nn.ReLU(inplace=True)),
        layer("classifier.2", nn.Dropout()),
        layer("classifier.3", nn.Linear(4096, 4096)),
        layer("classifier.4", nn.ReLU(inplace=True)),
        layer("classifier.5", nn.Dropout()),
        layer("classifier.6", nn.Linear(4096, classes)),
    ]


def vgg11(classes: int = 1000) -> list[Layer]:
    *features, last = _features((1, 1, 2, 2, 2))
    pooled = Layer(last.name, (*last.steps, *_pooling().steps))
    return [*features, pooled, *_classifier(classes)]


def vgg19(classes: int = 1000) -> list[Layer]:
    return [*_features((2, 2, 4, 4, 4)), _pooling(), *_classifier(classes)]


def _pooling() -> Layer:
    return layer("avgpool", nn.AdaptiveAvgPool2d(7), flatten=nn.Flatten())
