"""A Keras model, or any tf.Module, as one flat vector.

Every node traces functions of its own (`tf.function`); nothing of a graph travels.
A vector is copied once on its way in, into fresh memory that TensorFlow then takes
over (DLPack: no copy), and once on its way out, straight from where TensorFlow
keeps its variables and gradients; both copies put kernels in order on the way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from garfield.adapters.contract import SGD, Batch, FlatVector
from garfield.adapters.tensorflow_layout import (
    AxisOrder,
    Part,
    as_it_is,
    by_rank,
    fresh_memory,
    keras_layouts,
    parts,
)
from garfield.adapters.tensorflow_loss import Loss, loss_of
from garfield.core.errors import ConfigError
from garfield.core.frameworks import tensorflow

tf = tensorflow()


class TensorFlowAdapter:
    """Implements `Adapter` for TensorFlow.

    Loss and optimizer are those that a Keras model was compiled with, unless others are given.
    `scheduler` maps the number of steps taken to a learning rate.
    """

    def __init__(
        self,
        model: Any,
        loss: Loss | None = None,
        optimizer: Any = None,
        scheduler: Callable[[int], float] | None = None,
    ) -> None:
        self.module, self.scheduler = model, scheduler
        self.optimizer: Any = optimizer or getattr(model, "optimizer", None)
        self._loss = loss_of(model, loss)
        self._parameters: list[Any] = list(model.trainable_variables)
        self._buffers = _float_buffers(model)
        self._check()
        layouts = keras_layouts(model) if hasattr(model, "_flatten_layers") else None
        self._laid = parts(_named(self._parameters, layouts))
        self.size = sum(part.size for part in self._laid)
        self._laid_buffers = parts(_named(self._buffers, {}), self.size)
        self._laid_tail = parts(_named(self._buffers, {}))  # the same, in a tail by itself
        self.tail = sum(part.size for part in self._laid_tail)
        self._places = (*self._laid, *self._laid_buffers)
        self._variables = tuple(_variable(v) for v in (*self._parameters, *self._buffers))
        self._steps = 0
        self._training = {"training": True} if _takes_training(model) else {}
        # functions of this node's own: compiled from its own code, when first called
        self._differentiate = tf.function(self._gradients, reduce_retracing=True)
        self._judge = tf.function(self._judged, reduce_retracing=True)
        self._apply = tf.function(self._applied)

    @classmethod
    def with_sgd(cls, model: Any, sgd: SGD) -> TensorFlowAdapter:
        """The model, trained by that descent.

        Without momentum, Keras' weight decay (w ← w − rate · λ · w) is that of torch; with it,
        decay and past rates stay out of Keras' velocity, but not of torch's.
        """
        rate, decay = sgd.learning_rate, sgd.learning_rate_decay
        optimizer = tf.keras.optimizers.SGD(
            rate, momentum=sgd.momentum, weight_decay=sgd.weight_decay or None
        )
        scheduler = (lambda step: rate / (1 + decay * step)) if decay else None
        return cls(model, optimizer=optimizer, scheduler=scheduler)

    @property
    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and canonical shapes, in the order of the vector."""
        return [(part.name, part.layout.canonical) for part in self._places]

    def read(self, out: FlatVector) -> None:
        for part, variable in zip(self._places, self._variables, strict=True):
            part.pack(_value(variable), out)

    def write(self, vector: FlatVector) -> None:
        self.write_body(vector[: self.size])
        self.write_tail(vector[self.size :])

    def write_body(self, body: FlatVector) -> None:
        self._assign(self._laid, self._variables[: len(self._laid)], body)

    def write_tail(self, tail: FlatVector) -> None:
        values = np.array(tail)
        for part in self._laid_tail:
            if part.name.endswith(("variance", "var")):
                mine = values[part.start : part.start + part.size]
                np.maximum(mine, 0.0, out=mine)  # whatever was sent: a root will be taken of it
        self._assign(self._laid_tail, self._variables[len(self._laid) :], values)

    @staticmethod
    def _assign(laid: Sequence[Part], variables: Sequence[Any], values: FlatVector) -> None:
        for part, variable, home in zip(laid, variables, fresh_memory(laid), strict=True):
            part.unpack(values, home)
            # the variable takes the memory over, without a copy; Keras' own way of saying it
            # takes five times as long
            tf.raw_ops.AssignVariableOp(resource=variable.handle, value=_given(home, part))

    def gradient(self, batch: Batch, out: FlatVector) -> float:
        inputs, targets = map(tf.convert_to_tensor, batch)
        loss, gradients = self._differentiate(inputs, targets)
        self._pack(gradients, out)
        return float(loss)

    def warm_up(self, inputs: tuple[int, ...]) -> None:
        """Compile the gradient for inputs of that shape now, while nobody waits for it."""
        before = np.empty(self.size + self.tail, np.float32)
        self.read(before)
        targets = np.zeros(inputs[0], np.int64)
        self.gradient((np.zeros(inputs, np.float32), targets), np.empty_like(before))
        self.write(before)  # statistics have moved

    def step(self, gradient: FlatVector) -> None:
        if self.optimizer is None:
            raise ConfigError("A server needs an optimizer. Pass one, or compile the model.")
        if self.scheduler is not None:
            self.optimizer.learning_rate = float(self.scheduler(self._steps))
        given = self._unpacked(gradient)
        if not getattr(self.optimizer, "built", True):
            self.optimizer.build(self._parameters)  # its variables, outside of any function
        self._apply(given)
        self._steps += 1

    def skip(self, steps: int) -> None:
        self._steps += steps

    def evaluate(self, batches: Iterable[Batch]) -> tuple[float, float]:
        right = count = 0
        loss = 0.0
        for batch in batches:
            inputs, targets = map(tf.convert_to_tensor, batch)
            hits, mean = self._judge(inputs, targets)
            right += int(hits)
            loss += float(mean) * len(targets)
            count += len(targets)
        return right / max(count, 1), loss / max(count, 1)

    def tensors(self) -> Mapping[str, npt.NDArray[Any]]:
        stored = getattr(self.module, "weights", None) or self.module.variables
        return {_name(variable): np.array(variable.numpy()) for variable in stored}

    def state(self) -> Mapping[str, Any]:
        """The optimizer's variables as arrays, by place."""
        kept = {f"optimizer.{i}": np.array(_value(v)) for i, v in enumerate(self._slots())}
        return {**kept, "steps": np.int64(self._steps)} if self.optimizer is not None else kept

    def restore(self, state: Mapping[str, Any]) -> None:
        if self.optimizer is None or "steps" not in state:
            return
        slots = self._slots()
        kept = [state.get(f"optimizer.{i}") for i in range(len(slots))]
        if any(a is None or a.shape != tuple(v.shape) for a, v in zip(kept, slots, strict=True)):
            raise ConfigError("The checkpoint is of another optimizer. Resume with the same one.")
        for variable, array in zip(slots, kept, strict=True):
            variable.assign(array)
        self._steps = int(state["steps"])

    # -- what TensorFlow compiles ---------------------------------------------------------

    def _gradients(self, inputs: Any, targets: Any) -> tuple[Any, list[Any]]:
        with tf.GradientTape() as tape:
            loss = self._loss(inputs, targets, self.module(inputs, **self._training))
        variables = [_variable(v) for v in self._parameters]
        found = tape.gradient(loss, variables, unconnected_gradients="zero")
        return loss, [tf.convert_to_tensor(gradient) for gradient in found]  # a sparse one, too

    def _judged(self, inputs: Any, targets: Any) -> tuple[Any, Any]:
        outputs = self.module(inputs, **dict.fromkeys(self._training, False))
        classes = tf.reshape(tf.argmax(outputs, axis=-1), [-1])
        one_hot = len(targets.shape) == len(outputs.shape) and targets.shape[-1] != 1
        wanted = tf.reshape(tf.argmax(targets, axis=-1) if one_hot else targets, [-1])
        hits = tf.reduce_sum(tf.cast(classes == tf.cast(wanted, classes.dtype), tf.int64))
        return hits, self._loss(inputs, targets, outputs)

    def _applied(self, gradients: Sequence[Any]) -> None:
        self.optimizer.apply_gradients(zip(gradients, self._parameters, strict=True))

    # -- layout -------------------------------------------------------------------------

    def _pack(self, gradients: Sequence[Any], out: FlatVector) -> None:
        for part, gradient in zip(self._laid, gradients, strict=True):
            part.pack(gradient, out)
        self._pack_buffers(out)

    def _pack_buffers(self, out: FlatVector) -> None:
        for part, buffer in zip(self._laid_buffers, self._buffers, strict=True):
            part.pack(_value(buffer), out)

    def _unpacked(self, gradient: FlatVector) -> list[Any]:
        """A gradient as tensors in memory of their own."""
        homes = fresh_memory(self._laid)
        for part, home in zip(self._laid, homes, strict=True):
            part.unpack(gradient, home)
        return list(map(_given, homes, self._laid))

    def _slots(self) -> list[Any]:
        """The optimizer's own variables, made if they are not there yet."""
        if self.optimizer is None:
            return []
        if not getattr(self.optimizer, "built", True):
            self.optimizer.build(self._parameters)
        found = self.optimizer.variables
        return list(found() if callable(found) else found)

    def _check(self) -> None:
        if not self._parameters:
            raise ConfigError(
                "The model has no trainable variables yet. Give it an Input layer, or call it on "
                "a batch first."
            )
        for variable in self._parameters:
            if tf.as_dtype(variable.dtype) != tf.float32:
                raise ConfigError(
                    f"Variable {_name(variable)} is {variable.dtype}. Vectors travel as float32: "
                    "build the model with that dtype."
                )


def _named(
    variables: Sequence[Any], layouts: Mapping[int, AxisOrder] | None
) -> list[tuple[str, AxisOrder]]:
    """Each variable's name and order of axes; by its rank alone in a model that is not Keras'."""
    found = []
    for variable in variables:
        shape = tuple(variable.shape)
        plain = by_rank(shape) if layouts is None else as_it_is(shape)
        found.append((_name(variable), (layouts or {}).get(id(variable), plain)))
    return found


def _float_buffers(model: Any) -> list[Any]:
    """Statistics and the like; not the weights of layers that were frozen."""
    layers = model._flatten_layers() if hasattr(model, "_flatten_layers") else ()
    weights = {id(v) for layer in layers for v in getattr(layer, "_trainable_variables", ())}
    return [
        variable
        for variable in model.non_trainable_variables
        if tf.as_dtype(variable.dtype) == tf.float32 and id(variable) not in weights
    ]


def _takes_training(model: Any) -> bool:
    return "training" in inspect.signature(getattr(model, "call", model)).parameters or hasattr(
        model, "_flatten_layers"
    )


def _given(home: FlatVector, part: Part) -> Any:
    """Memory that nobody else knows of, as a tensor: TensorFlow may keep it."""
    return tf.experimental.dlpack.from_dlpack(home.reshape(part.layout.shape).__dlpack__())


def _variable(variable: Any) -> Any:
    """The tf.Variable inside a Keras one."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def _value(variable: Any) -> Any:
    """What it holds, without a copy."""
    return _variable(variable).read_value()


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name.removesuffix(":0"))
