"""The loss of a TensorFlow model: the one given, the one it was compiled with, or a guess.

The guess is cross-entropy between whole-numbered classes and what the model puts
out: logits, as in PyTorch, unless its last layer is a softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from garfield.core.frameworks import tensorflow

tf = tensorflow()

Loss = Callable[[Any, Any], Any] | str
"""Keras': a name, an object, or a function of (targets, outputs)."""

BatchLoss = Callable[[Any, Any, Any], Any]
"""(inputs, targets, outputs) to a scalar."""


def loss_of(model: Any, loss: Loss | None) -> BatchLoss:
    """One number for a batch, the model's own penalties included."""
    if loss is None and getattr(model, "compiled", False) and model.loss is not None:
        return lambda x, y, outputs: model.compute_loss(x=x, y=y, y_pred=outputs)
    if loss is None:
        logits = not _ends_in_softmax(model)
        chosen: Any = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=logits)
    else:
        chosen = tf.keras.losses.get(loss)

    def batch_loss(x: Any, y: Any, outputs: Any) -> Any:
        total = tf.reduce_mean(chosen(y, outputs))
        penalties = getattr(model, "losses", None)
        return total + tf.add_n(penalties) if penalties else total

    return batch_loss


def _ends_in_softmax(model: Any) -> bool:
    layers = getattr(model, "layers", None) or [None]
    last = layers[-1]
    activation = getattr(last, "activation", None)
    return type(last).__name__ == "Softmax" or getattr(activation, "__name__", "") == "softmax"
