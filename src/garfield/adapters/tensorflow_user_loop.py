"""A Keras model whose training stays its user's: `fit`, or a loop that calls the optimizer.

Both end in the optimizer's `apply`. It is replaced by one that exchanges gradients,
lets the optimizer apply them as always, and exchanges models. That is not TensorFlow's
to compute, and waiting for others inside of a graph would hold its threads up: so `fit`
is made to run eagerly, and a loop must call the optimizer outside of any tf.function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from garfield.adapters.contract import FlatVector
from garfield.adapters.tensorflow_adapter import TensorFlowAdapter, tf
from garfield.core.errors import ConfigError


class TensorFlowUserLoop(TensorFlowAdapter):
    """A Keras model and the optimizer that its user's loop, or `fit`, calls."""

    def __init__(self, model: Any, optimizer: Any = None) -> None:
        super().__init__(model, optimizer=optimizer)
        if not hasattr(self.optimizer, "apply"):
            raise ConfigError("Pass a Keras optimizer, or compile the model with one.")
        if hasattr(model, "run_eagerly"):
            model.run_eagerly, model.jit_compile, model.train_function = True, False, None
        self._own = np.zeros(self.size, np.float32)
        self._joined: list[Any] = []

    def around_step(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Call these before and after each of the optimizer's steps, from now on."""
        optimizer, apply = self.optimizer, self.optimizer.apply
        if not optimizer.built:
            optimizer.build(self._parameters)

        def exchanged(grads: Sequence[Any], trainable_variables: Any = None) -> None:
            if not tf.executing_eagerly():
                raise ConfigError(
                    "The optimizer was called inside of a tf.function, where nothing can be "
                    "exchanged. Compute gradients there, and apply them outside."
                )
            known = self._parameters if trainable_variables is None else trainable_variables
            own = self._in_order(dict(zip(map(id, known), grads, strict=True)))
            for part, gradient in zip(self._laid, own, strict=True):
                part.pack(gradient, self._own)
            before()
            apply(self._joined, self._parameters)
            after()

        optimizer.apply = exchanged

    def own_gradient(self, out: FlatVector) -> None:
        """The gradients that the step under way has begun with, and the buffers."""
        out[: self.size] = self._own
        self._pack_buffers(out)

    def step(self, gradient: FlatVector) -> None:
        """Replace the gradients; the step that is under way takes them from here."""
        self._joined = self._unpacked(gradient)

    def _in_order(self, gradients: dict[int, Any]) -> list[Any]:
        """Dense, in the order of the vector; zeros where there is none."""
        found = [gradients.get(id(variable)) for variable in self._parameters]
        return [
            tf.zeros(variable.shape) if gradient is None else tf.convert_to_tensor(gradient)
            for variable, gradient in zip(self._parameters, found, strict=True)
        ]
