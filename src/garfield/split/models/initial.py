"""The weights a model starts from: drawn from a seed, or read from a file."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from garfield.core.errors import InputError, MissingDependency


@contextmanager
def drawn(seed: int) -> Iterator[None]:
    """Weights made inside are the same on every machine; torch's random state stays as it is."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        yield


def draw_convolutions(model: nn.Module) -> None:
    """Draw them by He et al. (ICCV 2015), so that signals keep their size."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")


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


def _safetensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise MissingDependency(
            "Weights in safetensors need a package that is not installed. "
            "Install it with: pip install 'garfield[split]'"
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
