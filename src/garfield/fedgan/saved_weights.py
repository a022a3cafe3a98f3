"""Learning states and weights as files: safetensors, which any program may read, never pickle.

    checkpoints/round-00000040.safetensors    all of the state, to go on from; the last two are kept
    weights/generator.safetensors             the generator's own names and nothing else
    weights/discriminator.safetensors

The files of weights carry what they are in their header: which networks, for which images, how
many classes. They load without this library into a module with the same names
(`module.load_state_dict(safetensors.torch.load_file(path))`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from garfield.core.errors import ConfigError, MissingDependency, RunError
from garfield.core.files import as_json, replacing
from garfield.fedgan.averaging import NETWORKS, State
from garfield.fedgan.gan import Gan, Image
from garfield.fedgan.networks import gan_for

KEPT = 2
_NAME = re.compile(r"round-(\d{8,})\.safetensors")


@dataclass(frozen=True)
class Described:
    """What a file of weights says of itself."""

    gan: str
    image: Image
    classes: tuple[str, ...]
    conditional: bool
    round: int

    def build(self) -> Gan:
        """The networks it is of."""
        return gan_for(
            self.gan, self.image, classes=len(self.classes) if self.conditional else None
        )


class LearningStates:
    """The checkpoints of a run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, number: int, state: Mapping[str, Tensor]) -> None:
        """Write what there is after so many rounds, and remove all but the last few."""
        path = self.directory / f"round-{number:08}.safetensors"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            _write(path, state, {"round": number})
        except OSError as problem:
            raise RunError(
                f"A checkpoint of round {number} cannot be written to {self.directory}: "
                f"{problem.strerror or problem}. Make room there, and resume."
            ) from problem
        saved = self.saved()
        for other in sorted(saved)[:-KEPT]:
            saved[other].unlink(missing_ok=True)
        for other in [later for later in saved if later > number]:
            saved[other].unlink(missing_ok=True)  # of a past that was given up
        for left in self.directory.glob(".round-*.part"):  # by a process that was killed
            left.unlink(missing_ok=True)

    def saved(self) -> dict[int, Path]:
        """The paths of all checkpoints, by how many rounds were over."""
        found = ((path, _NAME.fullmatch(path.name)) for path in self.directory.glob("round-*"))
        return {int(match[1]): path for path, match in found if match}

    def newest(self) -> tuple[int, State]:
        """The last one that can be read; ConfigError if there is none."""
        saved = self.saved()
        problems = []
        for number in sorted(saved, reverse=True):
            try:
                return number, _read(saved[number])[0]
            except ConfigError as problem:
                problems.append(str(problem))
        raise ConfigError(" ".join(problems) or f"{self.directory} holds no checkpoint.")


def export(directory: Path, state: Mapping[str, Tensor], about: Described) -> None:
    """Write the weights of both networks into a directory, each by itself."""
    directory.mkdir(parents=True, exist_ok=True)
    for prefix in NETWORKS:
        own = {
            name.removeprefix(f"{prefix}."): tensor
            for name, tensor in state.items()
            if name.startswith(f"{prefix}.")
        }
        _write(directory / f"{prefix}.safetensors", own, vars(about))


def read_generator(path: Path) -> tuple[Gan, nn.Module, Described]:
    """The generator that `export` wrote, ready to draw from."""
    state, header = _read(path)
    try:
        about = Described(
            str(header["gan"]), tuple(header["image"]), tuple(header["classes"]),
            bool(header["conditional"]), int(header["round"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{path} does not say which networks it is of.") from None
    gan = about.build()
    generator, _ = gan.build(seed=0)
    try:
        generator.load_state_dict(state)
    except RuntimeError as problem:
        why = str(problem).splitlines()[0]
        raise ConfigError(f"{path} does not fit {about.gan}: {why}") from None
    return gan, generator, about


def _write(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    save_file = _safetensors().save_file
    kept = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as partial:
        save_file(kept, partial, metadata={name: as_json(value) for name, value in header.items()})


def _read(path: Path) -> tuple[State, dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            header = {name: json.loads(text) for name, text in (file.metadata() or {}).items()}
            return {name: file.get_tensor(name) for name in file.keys()}, header  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as problem:
        raise ConfigError(f"{path} cannot be read: {problem}.") from None


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise MissingDependency(
            "Weights are kept as safetensors, which is not installed. "
            "Install it with: pip install 'garfield-ml[fedgan]'"
        ) from None
    return safetensors.torch
