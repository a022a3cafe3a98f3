"""Settings that only some applications know; each application names those it uses.

A setting given to an application that does not use it is refused, not ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from garfield.core.errors import ConfigError


@dataclass(frozen=True)
class Options:
    """Flags of `garfield train` and keys of its TOML file carry these names."""

    lossy_workers: int = 0
    """aggregathor: how many workers send by UDP, where datagrams may be lost."""
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

    def refuse_unused(self, app: str, used: tuple[str, ...]) -> None:
        """ConfigError for an option that was set and that the application does not know."""
        for field in fields(Options):
            if field.name not in used and getattr(self, field.name) != field.default:
                raise ConfigError(
                    f"{app} does not use {field.name}. "
                    + (f"It knows: {', '.join(used)}." if used else "Leave it out.")
                )
