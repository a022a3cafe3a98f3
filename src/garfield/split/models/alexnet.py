"""AlexNet in one column, 61,100,840 parameters at 1000 classes.

Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv:1404.5997.
22 layers, as Table 5.2 of the thesis counts them: avgpool and flatten included. Frozen up to
layer 17, the rectifier behind the first dense layer.
"""

from torch import nn

from garfield.split.models.cutting import Layer, layer


def alexnet(classes: int = 1000) -> list[Layer]:
    return [
        layer("features.0", nn.Conv2d(3, 64, 11, stride=4, padding=2)),  # (64, 55, 55)
        layer("features.1", nn.ReLU(inplace=True)),
        layer("features.2", nn.MaxPool2d(3, stride=2)),  # (64, 27, 27)
        layer("features.3", nn.Conv2d(64, 192, 5, padding=2)),
        layer("features.4", nn.ReLU(inplace=True)),
        layer("features.5", nn.MaxPool2d(3, stride=2)),  # (192, 13, 13)
        layer("features.6", nn.Conv2d(192, 384, 3, padding=1)),
        layer("features.7", nn.ReLU(inplace=True)),
        layer("features.8", nn.Conv2d(384, 256, 3, padding=1)),
        layer("features.9", nn.ReLU(inplace=True)),
        layer("features.10", nn.Conv2d(256, 256, 3, padding=1)),
        layer("features.11", nn.ReLU(inplace=True)),
        layer("features.12", nn.MaxPool2d(3, stride=2)),  # (256, 6, 6)
        layer("avgpool", nn.AdaptiveAvgPool2d(6)),
        layer("flatten", nn.Flatten()),  # (9216,)
        layer("classifier.0", nn.Dropout()),
        layer("classifier.1", nn.Linear(9216, 4096)),
        layer("classifier.2", nn.ReLU(inplace=True)),
        layer("classifier.3", nn.Dropout()),
        layer("classifier.4", nn.Linear(4096, 4096)),
        layer("classifier.5", nn.ReLU(inplace=True)),
        layer("classifier.6", nn.Linear(4096, classes)),
    ]
