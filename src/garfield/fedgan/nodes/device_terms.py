"""On what terms a device joins a training that somebody else began."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from garfield.core.errors import ConfigError
from garfield.fedgan.nodes.messages import About
from garfield.fedgan.settings import PrivacySettings


@dataclass(frozen=True)
class DeviceTerms:
    """What a device offers, and what of its images it gives away at most."""

    memory_mb: float = 1024.0
    compute: float = 1.0
    """How fast it is; 1 bears the full load."""
    noise_epsilon: float | None = None
    """Noise on its counts before they leave."""
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    account: Path | None = None
    """The file that says what of a privacy budget is spent."""
    secure_aggregation: bool = False
    """It takes part in no training where a server sees its networks by themselves."""

    def __post_init__(self) -> None:
        if self.privacy.dp_epsilon is not None and self.account is None:
            raise ConfigError("A privacy budget is kept in a file: give --account FILE.")

    def check(self, about: About) -> None:
        """Raise ConfigError for a training in which they would not be kept."""
        if self.secure_aggregation and not about.secure_aggregation:
            raise ConfigError(
                "In this training the server sees the networks of each device. Let it be begun "
                "with --secure-aggregation, or take part without."
            )
        promised = self.privacy.dp_epsilon is not None or self.noise_epsilon is not None
        if about.clusters is not None and about.clusters.tells_sums and promised:
            raise ConfigError(
                "In this training devices send sums of their features, for clusters to be fitted "
                "to, and no privacy budget covers these. Take part without --dp-epsilon and "
                "--noise-epsilon, or let the server give --public-images."
            )
