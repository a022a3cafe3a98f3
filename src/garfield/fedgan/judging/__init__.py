"""How good are generated images? Distances to real ones, classes covered, what they teach.

    judge = judge_for("fashion")
    found = judge.score(images)            # (10000, 1, 28, 28) in [-1, 1]
    print(found.label, found.fid, found.modes, found.kl)

An *extractor* (`extractors.py`) turns images into features: a small frozen network that is
shipped for MNIST and for Fashion-MNIST (`shipped.py`, `small_cnn.py`), EfficientNet-Lite0 for all
others, or Inception-v3 with weights of the user's own (`inception.py`). `frechet.py` compares
features with those of real images (`real_images.py`), `classes.py` the classes that a classifier
sees, the extractor's own or one fitted to the real images (`class_probe.py`). `trained_on.py`
trains a classifier on generated images and tests it on real ones. `evaluation.py` does all that
when a training asks for it, `background.py` beside a training.

Measured over the small CNN, against the 10,000 test images (one class: about 6,000 images, from
the least to the most of the ten classes):

| images                     | MNIST: FID | modes | KL        | Fashion: FID | modes | KL        |
|----------------------------|------------|-------|-----------|--------------|-------|-----------|
| 10,000 training images     | 0.85       | 10    | 0.0005    | 0.19         | 10    | 0.0006    |
| uniform noise              | 502        | 1     | 2.14      | 189          | 1     | 1.95      |
| Gaussian noise, clipped    | 471        | 1     | 2.16      | 204          | 2     | 1.95      |
| one class of real images   | 491–667    | 1     | 2.17–2.40 | 158–330      | 1–2   | 1.67–2.27 |

Judging 10,000 images takes 1.1 s of a core here, once the real ones are known; over EfficientNet
100 of them took 0.95 s. A classifier trained on 10,000 real images, which takes 16 s, names 98.3 %
of MNIST's test images and 86.9 % of Fashion-MNIST's (98.3 and 87.5 if the frozen classifier labels
what it is trained on): what a perfect generator would reach.
"""

from garfield.fedgan.judging.background import BackgroundJudge, asked_labels, drawn_images
from garfield.fedgan.judging.evaluation import GeneratorEvaluation, as_metrics
from garfield.fedgan.judging.judge import Judge, Judgement, judge_for
from garfield.fedgan.judging.real_images import ENOUGH, MOST
from garfield.fedgan.judging.trained_on import LabelsBy

__all__ = [
    "ENOUGH",
    "MOST",
    "BackgroundJudge",
    "GeneratorEvaluation",
    "Judge",
    "Judgement",
    "LabelsBy",
    "as_metrics",
    "asked_labels",
    "drawn_images",
    "judge_for",
]
