"""TensorFlow in a process of its own, measured: prints JSON.

``convert MODEL BATCH STEPS``: a worker's step on one thread, and what it copies.
``plain MODEL BATCH STEPS``: a Keras loop as anybody writes it, on all cores.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from garfield.core.frameworks import tensorflow
from garfield.models import MODELS, build_in_keras
from garfield.runs.process import use_threads

Batch = tuple[Any, Any]


def convert(model: str, batch: int, steps: int) -> dict[str, Any]:
    use_threads(1, ["tensorflow"])
    from garfield.adapters import tensorflow_layout
    from garfield.adapters.tensorflow_adapter import TensorFlowAdapter

    copied: list[int] = []
    copy = tensorflow_layout.copy_turned

    def counted(source: Any, order: Any, target: Any) -> None:
        copied.append(target.nbytes)
        copy(source, order, target)

    adapter = TensorFlowAdapter(build_in_keras(model, seed=0))
    vector = np.empty(adapter.size + adapter.tail, np.float32)
    out = np.empty_like(vector)
    adapter.read(vector)
    data = _batch(model, batch)
    gradients = adapter._differentiate(*map(tensorflow().convert_to_tensor, data))[1]
    texts = _to_protobuf([variable.value for variable in adapter.module.variables])
    tensorflow_layout.copy_turned = counted
    amounts = [
        _amount(copied, lambda: adapter.write(vector)),
        _amount(copied, lambda: adapter._pack(gradients, out)),
    ]
    tensorflow_layout.copy_turned = copy
    times = _in_turns(
        {
            "step": lambda: (adapter.write(vector), adapter.gradient(data, out)),
            "in": lambda: adapter.write(vector),
            "out": lambda: adapter._pack(gradients, out),
            "protobuf_out": lambda: _to_protobuf(gradients),
            "protobuf_in": lambda: _from_protobuf(texts, adapter.module.variables),
        },
        steps,
    )
    return {
        "step_s": times["step"],
        "bytes": vector.nbytes,
        "garfield": {"in_s": times["in"], "out_s": times["out"], "copied": amounts},
        "protobuf": {"in_s": times["protobuf_in"], "out_s": times["protobuf_out"]},
    }


def plain(model: str, batch: int, steps: int) -> dict[str, Any]:
    tf = tensorflow()
    network = build_in_keras(model, seed=0)
    network.compile(tf.keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy")
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(inputs: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(targets, network(inputs, training=True))
        found = tape.gradient(value, network.trainable_variables)
        network.optimizer.apply(found, network.trainable_variables)
        return value

    data = _batch(model, batch)
    for _ in range(5):
        step(*map(tf.convert_to_tensor, data))
    began = time.perf_counter()
    for _ in range(steps):
        float(step(*map(tf.convert_to_tensor, data)))
    return {"step_s": (time.perf_counter() - began) / steps}


def _batch(model: str, count: int) -> Batch:
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((count, *MODELS[model].image)).astype(np.float32)
    return inputs, rng.integers(0, 10, count)


def _amount(copied: list[int], work: Callable[[], Any]) -> int:
    copied.clear()
    work()
    return sum(copied)


def _in_turns(works: dict[str, Callable[[], Any]], steps: int) -> dict[str, float]:
    """The median CPU seconds of each, of all threads of this process."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(steps + 2):
        for name, work in works.items():
            began = time.process_time()
            work()
            if turn >= 2:
                times[name].append(time.process_time() - began)
    return {name: median(found) for name, found in times.items()}


def _to_protobuf(tensors: Any) -> list[bytes]:
    """As the thesis's implementation leaves TensorFlow: arrays, protocol buffers, bytes."""
    made = (tensorflow().make_tensor_proto(tensor.numpy()) for tensor in tensors)
    return [proto.SerializeToString() for proto in made]


def _from_protobuf(texts: list[bytes], variables: Any) -> None:
    from tensorflow.core.framework.tensor_pb2 import TensorProto

    for text, variable in zip(texts, variables, strict=True):
        variable.assign(tensorflow().make_ndarray(TensorProto.FromString(text)))


if __name__ == "__main__":
    what, model, batch, steps = sys.argv[1:]
    found = {"convert": convert, "plain": plain}[what](model, int(batch), int(steps))
    print(json.dumps(found))
