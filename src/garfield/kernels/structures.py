"""Structures: a state dict, a list of arrays, or any nest of both, as one vector and back.

A structure is taken apart into leaves. The floats among them are copied, once, into one flat
vector, which is float64 if one of them is and float32 otherwise; integers, booleans and what is no
array at all (a number of Python's, a text) stay as they are, beside it. Keys are visited in an
order that does not depend on who wrote them first, so that rows of equal structure are equal
vectors.

What two rows must have in common to be of the same model is their `signature`: types of
containers, keys, and the kind, dtype and shape of every array.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from garfield.core.types import Vector
from garfield.kernels.kinds import (
    FLOATS,
    TRACED,
    Framework,
    Kind,
    as_numpy,
    dtype_name,
    framework_of,
    is_array,
    is_traced,
    kind_of,
    torch_is_forced,
)

DEEPEST = 64
"""Containers within containers beyond this are not looked into: nobody's model has so many."""

_KEPT = ("bool", "int", "uint")  # how dtypes begin that are not aggregated
Role = Literal["floats", "kept", "unusable"]


class Leaf(NamedTuple):
    """What an array is, or something that is none."""

    framework: Framework | None
    dtype: str
    """Of an array its dtype, of anything else the name of its type."""
    shape: tuple[int, ...] = ()
    unusable: str = ""
    """Why nothing can be made of it."""

    @property
    def role(self) -> Role:
        if self.unusable:
            return "unusable"
        return "floats" if self.framework and self.dtype in FLOATS else "kept"

    def __str__(self) -> str:
        if self.unusable:
            return self.unusable
        return self.dtype if self.framework is None else f"{self.framework} {self.dtype}"


class Branch(NamedTuple):
    """What a container is."""

    type: type
    keys: tuple[Any, ...] | None
    """Of a mapping, in the order in which they are visited; None for a sequence."""
    parts: tuple[Signature, ...]


Signature: TypeAlias = "Leaf | Branch"


@dataclass(frozen=True)
class Shape:
    """A container without its leaves: which container, and the places of the leaves within."""

    empty: Any
    """A copy of it that holds nothing of value, or its type where that cannot be changed."""
    parts: Mapping[Any, Shape | int]
    """By key or position: a container, or the number of a leaf."""


@dataclass(frozen=True)
class FlatRow:
    """One row: its floats in one vector, and all else that it was."""

    signature: Signature
    vector: Vector
    """Of numpy, or of torch on the device that all of it was on."""
    shape: Shape | int
    kinds: tuple[Kind, ...]
    """Of each leaf of floats."""
    sizes: tuple[tuple[int, ...], ...]
    """The shape of each leaf."""
    kept: Mapping[int, Any]
    """By number, the leaves that are not aggregated."""

    @property
    def has_own(self) -> bool:
        """Whether there is anything in it beside floats and plain containers."""
        return bool(self.kept) or _has_attributes(self.shape)

    def restored(self, vector: Vector) -> Any:
        """What this row would be with other floats; all else is a copy of its own."""
        values, start, kinds = [], 0, iter(self.kinds)
        for number, size in enumerate(self.sizes):
            if number in self.kept:
                values.append(_copied(self.kept[number]))
                continue
            end = start + math.prod(size)
            values.append(_shaped(next(kinds), vector[start:end], size))
            start = end
        return _filled(self.shape, values)

    def owned(self) -> FlatRow:
        """The same with a vector that nobody else can write to."""
        copied = self.vector.copy() if framework_of(self.vector) == "numpy" else self.vector.clone()
        return replace(self, vector=copied)


def flatten(row: Any) -> FlatRow:
    """Take a row apart; one that cannot be aggregated says so in its signature."""
    leaves: list[Any] = []
    signature, shape = _walk(row, leaves, 0)
    described = _leaves(signature)
    roles = [leaf.role for leaf in described]
    floats = [leaf for leaf, role in zip(leaves, roles, strict=True) if role == "floats"]
    kept = {i: leaf for i, leaf in enumerate(leaves) if roles[i] != "floats"}
    wide = any(leaf.role == "floats" and leaf.dtype == "float64" for leaf in described)
    return FlatRow(
        signature,
        np.empty(0, np.float32) if "unusable" in roles else _joined(floats, wide),
        shape,
        tuple(kind_of(leaf) for leaf in floats),
        tuple(leaf.shape for leaf in described),
        kept,
    )


def obstacle(signature: Signature) -> str | None:
    """Why rows of this signature cannot be aggregated; None if they can."""
    leaves = _leaves(signature)
    for leaf in leaves:
        if leaf.unusable:
            return f"{leaf.unusable}."
    if any(leaf.role == "floats" for leaf in leaves):
        return None
    found = ", ".join(dict.fromkeys(str(leaf) for leaf in leaves)) or "nothing"
    return (
        f"no arrays of {', '.join(FLOATS)} to aggregate, but {found}. Pass vectors, state dicts or "
        "lists of arrays of numpy, torch, tensorflow or jax."
    )


def difference(one: Signature, other: Signature, whose: str, at: str = "") -> str:
    """Where `one` first differs from what `whose` row is: "shape (4,) where row 0 has (3,)"."""
    place = f"at {at} " if at else ""
    if isinstance(one, Leaf) and isinstance(other, Leaf):
        if str(one) == str(other):
            return f"{place}shape {one.shape} where {whose} has {other.shape}"
        return f"{place}{one} where {whose} has {other}"
    if isinstance(one, Leaf) or isinstance(other, Leaf) or one.type != other.type:
        return f"{place}{_named(one)} where {whose} has {_named(other)}"
    if one.keys is None or other.keys is None:
        if len(one.parts) != len(other.parts):
            return f"{place}{len(one.parts)} parts where {whose} has {len(other.parts)}"
    elif one.keys != other.keys:
        return f"{place}{_keys_apart(one.keys, other.keys, whose)}"
    for i, (part, theirs) in enumerate(zip(one.parts, other.parts, strict=True)):
        if part != theirs:
            key = i if one.keys is None else one.keys[i]
            return difference(part, theirs, whose, f"{at}[{key!r}]")
    raise AssertionError("these are equal")


# -- taking apart -----------------------------------------------------------------------------


def _walk(value: Any, leaves: list[Any], depth: int) -> tuple[Signature, Shape | int]:
    if depth < DEEPEST:
        if isinstance(value, Mapping):
            keys = sorted(value, key=lambda key: (type(key).__name__, str(key)))
            return _walk_parts(value, {key: value[key] for key in keys}, leaves, depth)
        if isinstance(value, (list, tuple)) and not is_array(value):
            return _walk_parts(value, dict(enumerate(value)), leaves, depth)
    if framework_of(value) is None and hasattr(value, "__dlpack__"):
        value = _from_dlpack(value)
    leaves.append(value)
    return _leaf(value, depth), len(leaves) - 1


def _walk_parts(
    whole: Any, parts: Mapping[Any, Any], leaves: list[Any], depth: int
) -> tuple[Signature, Shape | int]:
    walked = {key: _walk(part, leaves, depth + 1) for key, part in parts.items()}
    keys = tuple(parts) if isinstance(whole, Mapping) else None
    branch = Branch(type(whole), keys, tuple(signature for signature, _ in walked.values()))
    order = whole if keys is not None else parts
    return branch, Shape(_emptied(whole), {key: walked[key][1] for key in order})


def _leaf(value: Any, depth: int) -> Leaf:
    if not is_array(value):
        deep = f"more than {DEEPEST} containers within each other" if depth >= DEEPEST else ""
        return Leaf(None, type(value).__name__, unusable=deep)
    name, framework = dtype_name(value), framework_of(value)
    unusable = ""
    if is_traced(value):
        return Leaf(framework, name, (), f"an array that {TRACED.removesuffix('.')}")
    if name not in FLOATS and not name.startswith(_KEPT):
        unusable = f"dtype {name}, which is none of {', '.join(FLOATS)}"
    elif framework == "torch" and str(value.layout) != "torch.strided":
        unusable = f"a tensor of layout {value.layout}: make it dense by to_dense()"
    return Leaf(framework, name, tuple(int(side) for side in value.shape), unusable)


def _from_dlpack(value: Any) -> Any:
    """An array of numpy that shares memory with any other library's; the value if it cannot."""
    try:
        return np.from_dlpack(value)
    except (RuntimeError, BufferError, TypeError, AttributeError):
        return value


def _emptied(whole: Any) -> Any:
    """A copy of a container that holds no leaf, and all else that it had."""
    if isinstance(whole, dict):
        empty = copy.copy(whole)
        for key in empty:
            empty[key] = None
        return empty
    return type(whole)


def _joined(leaves: list[Any], wide: bool) -> Vector:
    """The floats of all leaves in one vector; a view where there is one leaf, and it can be."""
    devices = {leaf.device for leaf in leaves if framework_of(leaf) == "torch"}
    all_torch = all(framework_of(leaf) == "torch" for leaf in leaves)
    if leaves and all_torch and len(devices) == 1:
        device = next(iter(devices))
        if device.type != "cpu" or torch_is_forced():
            return _joined_on(device, leaves, wide)
    dtype = np.float64 if wide else np.float32
    if len(leaves) == 1 and dtype_name(leaves[0]) == np.dtype(dtype).name:
        array = leaves[0].detach().cpu() if all_torch else leaves[0]
        return np.ascontiguousarray(as_numpy(array), dtype=dtype).reshape(-1)
    whole = np.empty(sum(math.prod(leaf.shape) for leaf in leaves), dtype)
    start = 0
    for leaf in leaves:
        end = start + math.prod(leaf.shape)
        _copy_into(whole[start:end].reshape(tuple(leaf.shape)), leaf)
        start = end
    return whole


def _joined_on(device: Any, leaves: list[Any], wide: bool) -> Vector:
    import torch

    dtype = torch.float64 if wide else torch.float32
    if len(leaves) == 1:
        return leaves[0].detach().to(dtype).reshape(-1)
    whole = torch.empty(sum(leaf.numel() for leaf in leaves), dtype=dtype, device=device)
    start = 0
    for leaf in leaves:
        end = start + leaf.numel()
        whole[start:end].view(leaf.shape).copy_(leaf.detach())
        start = end
    return whole


def _copy_into(place: np.ndarray[Any, Any], leaf: Any) -> None:
    if framework_of(leaf) == "torch":  # which copies bfloat16 and from any device
        import torch

        torch.from_numpy(place).copy_(leaf.detach())
    else:
        np.copyto(place, as_numpy(leaf), casting="unsafe")  # bfloat16 is nobody's same kind


# -- putting together -------------------------------------------------------------------------


def _shaped(kind: Kind, vector: Vector, shape: tuple[int, ...]) -> Any:
    on_torch = framework_of(vector) == "torch"
    array = replace(kind, on_torch=on_torch).wrap(vector)
    if kind.framework == "tensorflow":
        import tensorflow as tf

        return tf.reshape(array, shape)
    return array.reshape(shape)


def _filled(shape: Shape | int, values: list[Any]) -> Any:
    if isinstance(shape, int):
        return values[shape]
    parts = {key: _filled(part, values) for key, part in shape.parts.items()}
    if isinstance(shape.empty, dict):
        whole = copy.copy(shape.empty)
        whole.update(parts)
        return whole
    if issubclass(shape.empty, Mapping):
        return shape.empty(parts)
    if hasattr(shape.empty, "_fields"):
        return shape.empty(*parts.values())
    return shape.empty(parts.values())


def _copied(value: Any) -> Any:
    framework = framework_of(value)
    if framework == "torch":
        return value.detach().clone()
    return value.copy() if framework == "numpy" else value  # others' cannot be written to


# -- describing -------------------------------------------------------------------------------


def _leaves(signature: Signature) -> list[Leaf]:
    if isinstance(signature, Leaf):
        return [signature]
    return [leaf for part in signature.parts for leaf in _leaves(part)]


def _has_attributes(shape: Shape | int) -> bool:
    if isinstance(shape, int):
        return False
    return bool(getattr(shape.empty, "__dict__", None) and isinstance(shape.empty, dict)) or any(
        map(_has_attributes, shape.parts.values())
    )


def _named(signature: Signature) -> str:
    if isinstance(signature, Branch):
        return f"a {signature.type.__name__}"
    if signature.framework is None or signature.unusable:
        return signature.unusable or f"a {signature.dtype}"
    return f"an array of {signature}"


def _keys_apart(keys: tuple[Any, ...], others: tuple[Any, ...], whose: str) -> str:
    missing = [key for key in others if key not in keys]
    if missing:
        return f"no key {missing[0]!r}, which {whose} has"
    more = [key for key in keys if key not in others]
    return f"a key {more[0]!r}, which {whose} has not"
