"""From stored images to a model's input: a declared list of steps, the same on either side.

    Transforms.parse("resize(256), crop(224), flip, normalise(imagenet)")

    resize(256)                    shorter side to 256, antialiased; resize(200, 300): height, width
    crop(224)                      the middle; crop(200, 300): height, width
    random-crop(224, 8)            anywhere, after 8 pixels of black on each side
    random-resized-crop(224, 0.08) a part of 0.08..1 of the area, 3:4..4:3, brought to 224×224
    flip(0.5)                      left to right, for that share of the images
    brightness(0.2)                times 0.8..1.2
    contrast(0.2)                  distance to the image's mean times 0.8..1.2
    normalise(imagenet)            (x − mean) / std by channel; lite is EfficientNet-Lite's
                                   (x − 127) / 128, half is 0.5 and 0.5; or six numbers

Pixels are float32 within 0..1 from the first step on, so that JPEG, uint8 and float32 objects
go the same way. Chance comes from (seed, epoch, sample id, step) alone: server and client,
whatever else is in a batch, see the same pixels, bit for bit. A request brings its list, so
steps and sizes are bounded.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from garfield.core.errors import ConfigError, InputError, UnknownName
from garfield.core.files import as_json
from garfield.split.objects.format import Images

if TYPE_CHECKING:
    import torch

MAX_STEPS = 16
MAX_TEXT = 2000
MAX_SIDE = 1024
"""Of what a step makes; the largest models of the registry take 224."""

CONSTANTS: dict[str, tuple[float, ...]] = {
    "imagenet": (0.485, 0.456, 0.406, 0.229, 0.224, 0.225),
    "lite": (*([127 / 255] * 3), *([128 / 255] * 3)),
    "half": (0.5,) * 6,
}
"""Means and standard deviations of red, green and blue that go by a name."""

_STEP = re.compile(r"\s*([a-z][a-z-]*)\s*(?:\(([^()]*)\))?\s*")
Arguments = tuple[float | str, ...]


@dataclass(frozen=True)
class Step:
    """One step and its arguments, within their bounds."""

    name: str
    arguments: Arguments = ()

    def __str__(self) -> str:
        if not self.arguments:
            return self.name
        texts = (each if isinstance(each, str) else f"{each:g}" for each in self.arguments)
        return f"{self.name}({', '.join(texts)})"


@dataclass(frozen=True)
class Transforms:
    """A list of steps, checked."""

    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        if len(self.steps) > MAX_STEPS:
            raise ConfigError(f"At most {MAX_STEPS} transforms may be given, got {len(self.steps)}")
        for step in self.steps:
            if step.name not in _KINDS:
                raise UnknownName("a transform", str(step.name)[:40], _KINDS)
            _KINDS[step.name].check(step)

    @classmethod
    def parse(cls, text: str) -> Transforms:
        """Read `name(argument, …), name, …`."""
        if len(text) > MAX_TEXT:
            raise ConfigError(f"Transforms of {len(text)} characters; at most {MAX_TEXT} are read.")
        steps, at = [], 0
        while text[at:].strip():
            found = _STEP.match(text, at)
            if not found or text[found.end() : found.end() + 1] not in ("", ","):
                raise ConfigError(f"transforms cannot be read from {text[at : at + 40]!r} on.")
            steps.append(Step(found[1], _arguments(found[2] or "")))
            at = found.end() + 1
        return cls(tuple(steps))

    def to_json(self) -> str:
        return as_json([[step.name, *step.arguments] for step in self.steps])

    @classmethod
    def from_json(cls, text: str) -> Transforms:
        """Read what `to_json` has written; ConfigError for anything else."""
        if len(text) > MAX_TEXT:
            raise ConfigError(f"Transforms of {len(text)} characters; at most {MAX_TEXT} are read.")
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError):
            raise ConfigError("transforms are no JSON.") from None
        if not isinstance(raw, list) or not all(isinstance(e, list) and e for e in raw):
            raise ConfigError("transforms must be a list of lists: a name and its arguments each.")
        for each in raw:
            if not isinstance(each[0], str):
                raise ConfigError("transforms: each begins with its name.")
            if not all(type(value) in (int, float, str) for value in each[1:]):
                raise ConfigError(f"{each[0][:40]}: arguments must be numbers or names.")
        return cls(tuple(Step(each[0], tuple(each[1:])) for each in raw))

    def __str__(self) -> str:
        return ", ".join(map(str, self.steps))

    @property
    def is_random(self) -> bool:
        """Whether two epochs may see different pixels."""
        return any(_KINDS[step.name].random for step in self.steps)

    @property
    def out_shape(self) -> tuple[int, int, int] | None:
        """Shape of each image in the end; None where it depends on what is stored."""
        for step in reversed(self.steps):
            if step.name in ("crop", "random-crop", "random-resized-crop"):
                return (3, *_sides(step))
            if step.name == "resize" and len(step.arguments) == 2:
                return (3, *_sides(step))
        return None

    def apply(
        self, images: Images, sample_ids: Sequence[int], seed: int, epoch: int
    ) -> torch.Tensor:
        """Float32 (n, 3, height, width) of these images; one size must come out for all."""
        import torch

        if len(images) != len(sample_ids):
            raise InputError(f"{len(images)} images came with {len(sample_ids)} ids.")
        if not len(images):
            raise InputError("There are no images to transform.")
        out: torch.Tensor | None = None
        for at, (image, sample_id) in enumerate(zip(images, sample_ids, strict=True)):
            pixels = _as_floats(image)
            for number, step in enumerate(self.steps):
                chance = _Chance(seed, epoch, int(sample_id), number)
                pixels = _KINDS[step.name].apply(pixels, step.arguments, chance)
            if out is None:
                out = torch.empty((len(images), *pixels.shape))
            elif out.shape[1:] != pixels.shape:
                raise InputError(
                    f"Images come out as {tuple(out.shape[1:])} and {tuple(pixels.shape)}. "
                    "Add a crop or a resize to one size to the transforms."
                )
            out[at] = pixels
        assert out is not None
        return out


class _Chance:
    """Numbers for one sample and step: the same on every machine and for every numpy."""

    def __init__(self, seed: int, epoch: int, sample_id: int, step: int) -> None:
        self._key = f"{seed}/{epoch}/{sample_id}/{step}".encode()

    def uniform(self, number: int) -> float:
        """Within 0..1, 1 excluded; the same `number` draws the same again."""
        digest = hashlib.blake2b(self._key, digest_size=8, salt=number.to_bytes(8, "big"))
        return (int.from_bytes(digest.digest(), "big") >> 11) / 2.0**53

    def between(self, number: int, low: float, high: float) -> float:
        return low + (high - low) * self.uniform(number)

    def below(self, number: int, count: int) -> int:
        """A whole number within 0..count − 1."""
        return min(int(self.uniform(number) * count), count - 1)


@dataclass(frozen=True)
class _KindOfStep:
    check: Callable[[Step], None]
    apply: Callable[[Any, Arguments, _Chance], Any]
    """(3, height, width) to the same, of another size maybe."""
    random: bool = False


# -- what steps may say ---------------------------------------------------------------------------


def _refuse(step: Step, usage: str) -> ConfigError:
    return ConfigError(f"{str(step)[:60]} is not a transform. Write {usage}.")


def _numbers(step: Step, usage: str, least: int, most: int) -> list[float]:
    """Its arguments as finite numbers, so many of them."""
    values = [each for each in step.arguments if not isinstance(each, str)]
    right = least <= len(values) <= most and len(values) == len(step.arguments)
    if not right or not all(math.isfinite(value) for value in values):
        raise _refuse(step, usage)
    return values


def _check_side(step: Step, value: float, least: int = 1) -> None:
    if value != int(value) or not least <= value <= MAX_SIDE:
        raise ConfigError(f"{step}: sizes are whole numbers within {least}..{MAX_SIDE}.")


def _check_size(step: Step) -> None:
    for side in _numbers(step, f"{step.name}(224) or {step.name}(200, 300)", 1, 2):
        _check_side(step, side)


def _check_random_crop(step: Step) -> None:
    side, *padding = _numbers(step, "random-crop(224) or random-crop(224, 8)", 1, 2)
    _check_side(step, side)
    for pixels in padding:
        _check_side(step, pixels, least=0)


def _check_resized_crop(step: Step) -> None:
    usage = "random-resized-crop(224) or random-resized-crop(224, 0.08)"
    side, *smallest = _numbers(step, usage, 1, 2)
    _check_side(step, side)
    if smallest and not 0 < smallest[0] <= 1:
        raise ConfigError(f"{step}: the smallest share of the area is above 0 and at most 1.")


def _check_share(step: Step) -> None:
    for share in _numbers(step, f"{step.name} or {step.name}(0.5)", 0, 1):
        if not 0 <= share <= 1:
            raise ConfigError(f"{step}: its number is within 0..1.")


def _check_normalise(step: Step) -> None:
    usage = f"normalise({' | '.join(CONSTANTS)}), or three means and three deviations"
    if len(step.arguments) == 1 and isinstance(step.arguments[0], str):
        if step.arguments[0] not in CONSTANTS:
            raise _refuse(step, usage)
        return
    values = _numbers(step, usage, 6, 6)
    if min(values[3:]) < 1e-6 or max(map(abs, values)) > 1e6:
        raise ConfigError(f"{str(step)[:60]}: deviations are above 0, and no number above 1e6.")


def _arguments(text: str) -> Arguments:
    found: list[float | str] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        try:
            value = float(part)
        except ValueError:
            found.append(part)
            continue
        found.append(int(value) if math.isfinite(value) and value == int(value) else value)
    return tuple(found)


def _sides(step: Step) -> tuple[int, int]:
    first = int(step.arguments[0])
    if step.name in ("random-crop", "random-resized-crop") or len(step.arguments) == 1:
        return first, first
    return first, int(step.arguments[1])


# -- what steps do: pixels are float32 (3, height, width) -----------------------------------------


def _as_floats(image: Any) -> torch.Tensor:
    """A stored image, uint8 (height, width, 3) or float32 (3, height, width), as float32."""
    import torch

    array = np.asarray(image)
    if array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 3:
        planes = np.array(array.transpose(2, 0, 1), order="C")  # as bytes: half the time
        return torch.from_numpy(planes).float().div_(255)
    if array.dtype == np.float32 and array.ndim == 3 and array.shape[0] == 3:
        return torch.from_numpy(np.array(array))
    raise InputError(
        f"An image is uint8 (height, width, 3) or float32 (3, height, width), "
        f"got {array.dtype} {array.shape}."
    )


def _resized(pixels: torch.Tensor, height: int, width: int) -> torch.Tensor:
    import torch.nn.functional as F  # noqa: N812 (everybody's name for it)

    if pixels.shape[1:] == (height, width):
        return pixels
    whole = pixels.unsqueeze(0)
    resized = F.interpolate(
        whole, (height, width), mode="bilinear", align_corners=False, antialias=True
    )
    return resized.squeeze(0)


def _resize(pixels: torch.Tensor, arguments: Arguments, chance: _Chance) -> torch.Tensor:
    if len(arguments) == 2:
        return _resized(pixels, int(arguments[0]), int(arguments[1]))
    side, (height, width) = int(arguments[0]), pixels.shape[1:]
    shorter = min(height, width)
    sides = [max(side, min(int(side * each / shorter), 64 * MAX_SIDE)) for each in (height, width)]
    if sides[0] * sides[1] > 16 * MAX_SIDE**2:
        raise InputError(f"resize({side}) of {height}×{width} would make {sides[0]}×{sides[1]}.")
    return _resized(pixels, sides[0], sides[1])


def _cut(pixels: torch.Tensor, top: int, left: int, height: int, width: int) -> torch.Tensor:
    if pixels.shape[1] < height or pixels.shape[2] < width:
        raise InputError(
            f"An image of {pixels.shape[1]}×{pixels.shape[2]} is too small to cut "
            f"{height}×{width} from it. Put a resize before the crop."
        )
    return pixels[:, top : top + height, left : left + width]


def _crop(pixels: torch.Tensor, arguments: Arguments, chance: _Chance) -> torch.Tensor:
    height, width = int(arguments[0]), int(arguments[-1])
    top, left = (pixels.shape[1] - height) // 2, (pixels.shape[2] - width) // 2
    return _cut(pixels, top, left, height, width)


def _random_crop(pixels: torch.Tensor, arguments: Arguments, chance: _Chance) -> torch.Tensor:
    import torch.nn.functional as F  # noqa: N812

    side = int(arguments[0])
    padding = int(arguments[1]) if len(arguments) > 1 else 0
    if padding:
        pixels = F.pad(pixels, (padding,) * 4)
    spare = [max(0, each - side) + 1 for each in pixels.shape[1:]]
    return _cut(pixels, chance.below(0, spare[0]), chance.below(1, spare[1]), side, side)


def _resized_crop(pixels: torch.Tensor, arguments: Arguments, chance: _Chance) -> torch.Tensor:
    side = int(arguments[0])
    smallest = float(arguments[1]) if len(arguments) > 1 else 0.08
    rows, columns = pixels.shape[1:]
    area = rows * columns * chance.between(0, smallest, 1.0)
    ratio = math.exp(chance.between(1, math.log(3 / 4), math.log(4 / 3)))
    height = max(1, min(rows, round(math.sqrt(area / ratio))))
    width = max(1, min(columns, round(math.sqrt(area * ratio))))
    top, left = chance.below(2, rows - height + 1), chance.below(3, columns - width + 1)
    return _resized(_cut(pixels, top, left, height, width), side, side)


def _flip(pixels: torch.Tensor, arguments: Arguments, chance: _Chance) -> torch.Tensor:
    share = float(arguments[0]) if arguments else 0.5
    return pixels.flip(2) if chance.uniform(0) < share else pixels


def _brightness(pixels: torch.Tensor, arguments: Arguments, chance: _Chance) -> torch.Tensor:
    most = float(arguments[0]) if arguments else 0.5
    return (pixels * chance.between(0, 1 - most, 1 + most)).clamp_(0, 1)


def _contrast(pixels: torch.Tensor, arguments: Arguments, chance: _Chance) -> torch.Tensor:
    most = float(arguments[0]) if arguments else 0.5
    mean = float(np.mean(pixels.numpy(), dtype=np.float64))  # torch's depends on its threads
    return ((pixels - mean) * chance.between(0, 1 - most, 1 + most) + mean).clamp_(0, 1)


def _normalise(pixels: torch.Tensor, arguments: Arguments, chance: _Chance) -> torch.Tensor:
    import torch

    named = isinstance(arguments[0], str)
    numbers = CONSTANTS[str(arguments[0])] if named else tuple(map(float, arguments))
    constants = torch.tensor(numbers).reshape(2, 3, 1, 1)  # means, deviations
    return pixels.sub_(constants[0]).div_(constants[1])  # ours alone: `_as_floats` has copied it


_KINDS: dict[str, _KindOfStep] = {
    "resize": _KindOfStep(_check_size, _resize),
    "crop": _KindOfStep(_check_size, _crop),
    "random-crop": _KindOfStep(_check_random_crop, _random_crop, random=True),
    "random-resized-crop": _KindOfStep(_check_resized_crop, _resized_crop, random=True),
    "flip": _KindOfStep(_check_share, _flip, random=True),
    "brightness": _KindOfStep(_check_share, _brightness, random=True),
    "contrast": _KindOfStep(_check_share, _contrast, random=True),
    "normalise": _KindOfStep(_check_normalise, _normalise),
}
