"""Kinds of vectors: what a user hands over becomes Rows, and comes back as it was.

numpy, torch, tensorflow and jax are told apart by the module of their type, so none
of them is imported here unless the caller already uses it. Arrays of jax are read and
given back through DLPack, without a copy where they lie in main memory.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from garfield.core.errors import InputError
from garfield.core.types import Flags, Floats, Vector
from garfield.kernels import aligned
from garfield.kernels.rows import Rows

Framework = Literal["numpy", "torch", "tensorflow", "jax"]
FLOATS = ("float32", "float64", "float16", "bfloat16")
TRACED = (
    "is being traced by a tf.function or jax.jit and has no values yet. Call the rule outside "
    "of it, or through tf.py_function or jax.pure_callback."
)
_forced_torch: ContextVar[bool] = ContextVar("forced_torch", default=False)


@contextlib.contextmanager
def torch_everywhere() -> Iterator[None]:
    """Take the torch path, meant for GPUs, for CPU tensors too: how it is tested."""
    token = _forced_torch.set(True)
    try:
        yield
    finally:
        _forced_torch.reset(token)


def torch_is_forced() -> bool:
    """Whether `torch_everywhere` is on."""
    return _forced_torch.get()


@dataclass(frozen=True)
class Kind:
    """What the rows were, so that the result can be the same."""

    framework: Framework
    dtype: Any
    device: Any = None
    on_torch: bool = False

    def wrap(self, vector: Any) -> Vector:
        """A result of the kernels, as the caller's kind, dtype and device."""
        if self.framework == "numpy":
            return vector.astype(self.dtype, copy=False)
        if self.framework == "torch":
            import torch

            tensor = vector if self.on_torch else torch.from_numpy(vector)
            return tensor.to(self.device, self.dtype)
        if self.framework == "jax":
            import jax

            array = jax.device_put(jax.dlpack.from_dlpack(vector), self.device)
            return array.astype(self.dtype)
        import tensorflow as tf

        with tf.device(self.device):
            if aligned.can_be_given(vector):  # nobody else has it: no copy is needed
                tensor = tf.experimental.dlpack.from_dlpack(vector.__dlpack__())
                return tf.cast(tf.identity(tensor), self.dtype)  # on the device, in the dtype
            return tf.cast(tf.convert_to_tensor(vector), self.dtype)

    def unwrap(self, vector: Vector, d: int, what: str) -> Any:
        """A vector of the caller's (a reference, say), as the kernels take it."""
        [row], _ = _read([vector], self.on_torch)
        if len(row) != d:
            raise InputError(f"{what} has length {len(row)}, but the rows have length {d}.")
        if not bool((abs(row) < float("inf")).all()):
            raise InputError(f"{what} holds NaN or infinity. Pass the last finite one.")
        return row


def read(gradients: Any, mask: Any = None) -> tuple[Rows, Kind]:
    """Rows of a list of 1-D vectors or one (n, d) array, copying only what it must."""
    if framework_of(gradients) in ("tensorflow", "jax") and len(gradients.shape) == 2:
        whole = as_numpy(gradients)  # not row by row: each would be a copy
        vectors: list[Any] = [_as_floats(row) for row in whole]
        kind = _read([gradients[0]], prefer_torch=False)[1] if vectors else None
    else:
        rows = list(gradients)
        vectors, kind = _read(rows, _forced_torch.get()) if rows else ([], None)
    if kind is None:
        raise InputError("There are no rows to aggregate.")
    for i, vector in enumerate(vectors):
        if len(vector) != len(vectors[0]):
            raise InputError(
                f"Row {i} has length {len(vector)}, row 0 has {len(vectors[0])}. "
                "All rows must come from the same model."
            )
    if len(vectors[0]) == 0:
        raise InputError("The rows are empty (d = 0).")
    present = None if mask is None else _presence(mask, len(vectors), len(vectors[0]))
    if kind.on_torch:
        from garfield.kernels.on_torch import TorchRows

        if present is None:
            return TorchRows(vectors), kind
        import torch

        masks = [torch.from_numpy(here).to(kind.device) for here in present]
        return TorchRows(vectors, present=masks), kind
    from garfield.kernels.native import MaskedRows, NativeRows

    return (NativeRows(vectors) if present is None else MaskedRows(vectors, present)), kind


def framework_of(vector: Any) -> Framework | None:
    """Which library a vector belongs to; None for anything that is not one."""
    if isinstance(vector, np.ndarray):
        return "numpy"
    for cls in type(vector).__mro__:
        package = cls.__module__.partition(".")[0]
        if package == "torch":
            return "torch"
        if package in ("tensorflow", "keras"):
            return "tensorflow"
        if package in ("jax", "jaxlib"):
            return "jax"
    return None


def is_array(value: Any) -> bool:
    """Whether it is an array or a tensor, rather than a module or a list of a framework's."""
    return framework_of(value) is not None and hasattr(value, "dtype") and hasattr(value, "shape")


def is_traced(array: Any) -> bool:
    """Whether it only stands for values that come later, in a function that is being compiled."""
    framework = framework_of(array)
    if framework == "jax":
        return isinstance(array, sys.modules["jax"].core.Tracer)
    return framework == "tensorflow" and not hasattr(array, "numpy")


def dtype_name(array: Any) -> str:
    """The name of its numbers, the same in every framework."""
    return str(getattr(array.dtype, "name", array.dtype)).removeprefix("torch.")


def as_numpy(array: Any) -> np.ndarray[Any, Any]:
    """Its numbers, as an array of numpy; not copied where they lie in main memory."""
    if framework_of(array) == "jax":
        with contextlib.suppress(RuntimeError, BufferError):  # bfloat16, or another device
            return np.from_dlpack(array)
    return np.asarray(array)


def _read(rows: Sequence[Any], prefer_torch: bool) -> tuple[list[Any], Kind]:
    frameworks = [framework_of(row) for row in rows]
    for i, (row, framework) in enumerate(zip(rows, frameworks, strict=True)):
        if framework is None:
            raise InputError(
                f"Row {i} is a {type(row).__name__}, not a vector. "
                "Pass arrays of numpy, torch, tensorflow or jax."
            )
        if framework != frameworks[0]:
            raise InputError(
                f"Row {i} is of {framework}, row 0 of {frameworks[0]}. Pass rows of one kind."
            )
        if is_traced(row):
            raise InputError(f"Row {i} {TRACED}")
        if len(row.shape) != 1:
            raise InputError(
                f"Row {i} has shape {tuple(row.shape)}, and is no vector. Flatten it with "
                "reshape(-1)."
            )
        name = dtype_name(row)
        if name not in FLOATS:
            raise InputError(
                f"Row {i} has dtype {name}. Convert it to one of {', '.join(FLOATS)} first."
            )
        if row.dtype != rows[0].dtype:
            raise InputError(
                f"Row {i} has dtype {name}, row 0 has {rows[0].dtype}. Convert them to one dtype."
            )
    if frameworks[0] == "torch":
        return _read_torch(rows, prefer_torch)
    return [_as_floats(as_numpy(row)) for row in rows], kind_of(rows[0])


def kind_of(array: Any) -> Kind:
    """What an array is, for others to be made like it."""
    framework = framework_of(array)
    assert framework is not None  # it is an array
    return Kind(framework, array.dtype, None if framework == "numpy" else array.device)


def _read_torch(rows: Sequence[Any], prefer_torch: bool) -> tuple[list[Any], Kind]:
    import torch

    device = rows[0].device
    for i, row in enumerate(rows):
        if row.device != device:
            raise InputError(f"Row {i} is on {row.device}, row 0 on {device}. Move them together.")
    on_torch = prefer_torch or device.type != "cpu"
    wide = torch.float64 if rows[0].dtype == torch.float64 else torch.float32
    tensors = [row.detach().to(wide).contiguous() for row in rows]
    kind = Kind("torch", rows[0].dtype, device, on_torch)
    return (tensors if on_torch else [tensor.numpy() for tensor in tensors]), kind


def _as_floats(row: np.ndarray[Any, Any]) -> Floats:
    """Contiguous, in this machine's byte order, float32 unless it was float64."""
    wide = np.float64 if row.dtype == np.float64 else np.float32
    return np.ascontiguousarray(row, dtype=wide)


def _presence(mask: Any, n: int, d: int) -> list[Flags]:
    masks = [np.ascontiguousarray(np.asarray(here)) for here in mask]
    for here in masks:
        if here.dtype != np.bool_:
            raise InputError(f"The presence mask has dtype {here.dtype}. Pass booleans.")
    shapes = {here.shape for here in masks}
    if len(masks) != n or shapes != {(d,)}:
        got = f"{len(masks)} rows of {' and '.join(map(str, shapes))}"
        raise InputError(f"The presence mask must be of shape ({n}, {d}), got {got}.")
    return masks
