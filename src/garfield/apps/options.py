"""Settings that only some applications know; each application names those it uses.

A setting given to an application that does not use it is refused, not ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from garfield.core.errors import ConfigError


@dataclass(frozen=True)
class Training:
    """How the model is trained, as far as an application has to know."""

    learning_rate: float = 0.05
    learning_rate_decay: float = 0.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    seed: int = 0

    def rate(self, step: int) -> float:
        """The learning rate of that step."""
        return self.learning_rate / (1 + self.learning_rate_decay * step)


@dataclass(frozen=True)
class Options:
    """Flags of `garfield train` and keys of its TOML file carry these names."""

    lossy_workers: int = 0
    """aggregathor: how many workers, the first honest ones, send by UDP, which may lose parts."""
    loss: float = 0.0
    """aggregathor: the share of datagrams dropped on those links, on purpose, for trials."""
    fill: str = "random"
    """aggregathor: what stands for lost values: random, zeros, last, or mask."""
    lossy_models: bool = False
    """aggregathor: models travel by UDP on those links too."""
    code: str = "repetition"
    """draco: repetition (decoded by majority) or cyclic (decoded by Fourier transform)."""
    redundancy: int = 0
    """draco: how many workers compute each gradient; 0 for the least, 2 f + 1."""
    gather_every: int = 0
    """liubei: steps between gathers; 0 to have it estimated from the model's smoothness."""
    gradient_quorum: int = 0
    """guanyu: how many gradients a server waits for, 2 f + 3 to n - f of them; 0 for n - f."""
    model_quorum: int = 0
    """guanyu: how many models a node waits for, 2 f + 3 to n - f of them; 0 for n - f."""

    @property
    def faulty_links(self) -> int:
        """How many workers count as faults because what they send may be filled."""
        told = self.fill == "mask" and not self.lossy_models
        return 0 if told else self.lossy_workers

    @property
    def training(self) -> Training:
        """Of the run that these are the options of."""
        return Training()

    def refuse_unused(self, app: str, used: tuple[str, ...]) -> None:
        """ConfigError for an option that was set and that the application does not know."""
        for field in fields(Options):
            if field.name not in used and getattr(self, field.name) != field.default:
                raise ConfigError(
                    f"{app} does not use {field.name}. "
                    + (f"It knows: {', '.join(used)}." if used else "Leave it out.")
                )
