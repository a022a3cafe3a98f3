"""Keras models and data that several tests use."""

import keras
import numpy as np
from keras import layers


def images(*shape, classes=3, count=16, seed=0):
    """The same ones whichever tests were run before."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((count, *shape)).astype(np.float32)
    return inputs, rng.integers(0, classes, count)


def varied():
    """One layer of every kind that is laid out in its own way."""
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, name="convolution")(inputs)
    x = layers.BatchNormalization(momentum=0.9)(x)
    x = layers.DepthwiseConv2D(3, depth_multiplier=2)(x)
    x = layers.Conv2DTranspose(5, 2)(x)
    x = layers.Dropout(0.0)(layers.Flatten()(x))
    return keras.Model(inputs, layers.Dense(3)(layers.Dense(7)(x)))
