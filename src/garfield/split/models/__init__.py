"""Models that can be cut between any two layers, in a registry of their own.

They take 224×224 images and carry torchvision's names, so that torchvision's weights fit them;
the `resnet50`, `vgg11` and `vgg19` of `garfield.models` are others, for 32×32 images. Layers
and freezing are those of Table 5.2 of the thesis, which has all but the last.

| name               | layers | frozen up to | parameters  | what counts as a layer             |
|--------------------|--------|--------------|-------------|------------------------------------|
| alexnet            | 22     | 17           | 61,100,840  | avgpool and flatten too            |
| resnet18           | 14     | 11           | 11,689,512  | a block                            |
| resnet50           | 22     | 20           | 25,557,032  | a block                            |
| vgg11              | 28     | 25           | 132,863,336 | neither avgpool nor flatten        |
| vgg19              | 45     | 36           | 143,667,240 | avgpool and flatten, as one        |
| densenet121        | 22     | 20           | 7,978,856   | a block; a transition is four      |
| efficientnet_lite0 | 25     | 22           | 4,652,008   | a block, of which the last is 18   |

`load` gives a `CutModel` (`cutting.py`); `traced.py` makes one of the user's own module,
`graph.py` writes its prefix as JSON that a server can check, `weights.py` carries weights to it.
"""

from garfield.split.models.registry import PRETRAINED, SPLIT_MODELS, SplitModel, empty_prefix, load

__all__ = ["PRETRAINED", "SPLIT_MODELS", "SplitModel", "empty_prefix", "load"]
