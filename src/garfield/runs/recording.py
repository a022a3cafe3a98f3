"""Settings of what a run writes for other tools, the same for every kind of run."""

from __future__ import annotations

from dataclasses import dataclass

from garfield.core.errors import ConfigError
from garfield.runs.event_logs import check_logs

PICTURES = ("png", "svg", "pdf", "none")


@dataclass(frozen=True)
class Recording:
    """What is written beside metrics.jsonl and summary.json."""

    log: tuple[str, ...] = ()
    """Where else metrics go, with commas: csv, tensorboard, mlflow."""
    plots: str = "png"
    """What pictures of the run are drawn as: png, svg, pdf, or none."""

    def check(self) -> Recording:
        """Raise ConfigError for a name that is none of these, MissingDependency for a package."""
        check_logs(self.log)
        if self.plots not in PICTURES:
            raise ConfigError(f"plots must be one of {', '.join(PICTURES)}, got {self.plots!r}.")
        return self
